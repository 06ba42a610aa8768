"""Takes pictures of the chart's dashboards for the documentation: `python -m tests.e2e.pictures docs/pictures`.

Runs a sandbox with load and faults under a real Prometheus (`tests.e2e.monitored`), has Prometheus answer the queries
of every panel, draws them with `page.html`, and has `chromium` and `pngquant` of Debian's packages take the picture.
`--page` keeps the pages as well. It shows what Grafana shows, in the same places; it is no Grafana.
"""

import argparse
import itertools
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.deploy import dashboards
from tests.e2e.monitored import Monitored, prometheus_folder
from tests.e2e.rig.controlplane import Missing

PAGE = Path(__file__).parent / "page.html"
LINE = 28
"""Pixels of a grid row."""
WIDTH = 1400
STEPS = 120
PROFILES = ("mig-1g.5gb", "mig-2g.10gb", "mig-1g.6gb", "mig-3g.20gb", "mig-1g.10gb", "mig-2g.12gb")
AT_ONCE = 6
Json = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.pictures", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=int, default=240, help="how long the story is")
    parser.add_argument("--page", action="store_true", help="keep the pages")
    read = parser.parse_args(arguments)
    programs = prometheus_folder()
    lacking = [name for name in ("chromium", "pngquant") if shutil.which(name) is None]
    if isinstance(programs, Missing) or lacking:
        print(programs.message if isinstance(programs, Missing) else f"install Debian's packages {' '.join(lacking)}")
        return 2
    read.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, Monitored(Path(scratch), programs) as monitored:
        began = time.time()
        _tell(monitored, read.seconds)
        for name, dashboard in dashboards.load().items():
            data = drawn(dashboard, monitored, seconds=time.time() - began, end=time.time())
            page = (read.folder if read.page else Path(scratch)) / f"{name}.html"
            page.write_text(PAGE.read_text().replace("/*DATA*/null", json.dumps(data)))
            _take(page, read.folder / f"{name}.png", data["height"] + 70)
    return 0


def _tell(monitored: Monitored, seconds: int) -> None:
    """Pods come and the oldest ones end; a GPU is lost and an agent falls silent."""
    pause, began = threading.Event(), time.time()
    monitored.load()
    monitored.want("too-large", "nvidia.com/mig-7g.40gb")
    faults = [(0.5, lambda: monitored.silence("a30")), (0.6, lambda: monitored.lose_gpu("h100"))]
    for number in itertools.count():
        share = (time.time() - began) / seconds
        while faults and share >= faults[0][0]:
            faults.pop(0)[1]()
        if share >= 1:
            return
        monitored.want(f"job-{number}", f"nvidia.com/{PROFILES[number % len(PROFILES)]}")
        running = monitored.running()
        if len(running) > AT_ONCE:
            monitored.end(running[number % 2])
        pause.wait(4)


def drawn(dashboard: Json, monitored: Monitored, *, seconds: float, end: float) -> Json:
    """What page.html draws."""
    step = max(round(seconds / STEPS), 1)
    times = [round(end - seconds) + step * number for number in range(int(seconds // step))]
    values = {"node": "a100"} if dashboard["uid"] == "gpuplan-node" else {}
    asked = Asked(monitored=monitored, values=values, times=times, step=step, span=f"{seconds:.0f}s")
    panels = [_panel(panel, asked) for panel in dashboards.panels(dashboard)]
    rows = [
        {"title": panel["title"], "top": panel["gridPos"]["y"] * LINE}
        for panel in dashboard["panels"]
        if panel["type"] == "row"
    ]
    height = max(panel["top"] + panel["height"] for panel in panels)
    about = "A sandbox of four nodes with load, a lost GPU and a silent agent; drawn from Prometheus' answers."
    if values:
        about += f" Node {values['node']}."
    return {"title": dashboard["title"], "about": about, "rows": rows, "panels": panels, "height": height}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the queries of a dashboard are filled with."""

    monitored: Monitored
    values: dict[str, str]
    times: list[int]
    step: int
    span: str

    def answer(self, target: Json) -> list[Json]:
        query = dashboards.filled(target["expr"], self.values, rate="20s", span=self.span)
        if target["instant"]:
            return self.monitored.query(query)
        first, last = self.times[0], self.times[-1]
        return self.monitored.query_range(query, seconds=last - first, end=last, step=self.step)


def _panel(panel: Json, asked: Asked) -> Json:
    defaults, grid = panel["fieldConfig"]["defaults"], panel["gridPos"]
    series = []
    for target in panel["targets"]:
        for one in asked.answer(target):
            points = [(float(at), float(value)) for at, value in one.get("values", [one.get("value")])]
            known = [(round(at), value) for at, value in points if not math.isnan(value)]
            if known:
                legend = _legend(target["legendFormat"], one["metric"])
                series.append({"legend": legend or "value", "labels": one["metric"], "points": known})
    organize = panel["transformations"][0]["options"] if panel["transformations"] else {}
    return {
        "title": panel["title"],
        "text": panel["description"],
        "kind": panel["type"],
        "grid": grid,
        "top": grid["y"] * LINE,
        "height": grid["h"] * LINE - 6,
        "unit": defaults["unit"],
        "stacked": defaults.get("custom", {}).get("stacking", {}).get("mode") == "normal",
        "thresholds": defaults.get("thresholds", {}).get("steps", []),
        "states": defaults.get("mappings", [{}])[0].get("options", {}) if defaults.get("mappings") else {},
        "columns": sorted(organize.get("indexByName", {}), key=lambda name: organize["indexByName"][name]),
        "names": organize.get("renameByName", {}),
        "times": asked.times,
        "series": series,
    }


def _legend(form: str, labels: dict[str, str]) -> str:
    return re.sub(r"{{(\w+)}}", lambda found: labels.get(found[1], ""), form)


def _take(page: Path, picture: Path, height: int) -> None:
    command = [
        *(
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
        ),
        *(f"--window-size={WIDTH},{height}", f"--screenshot={picture.resolve()}", page.resolve().as_uri()),
    ]
    subprocess.run(command, check=True, timeout=120, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run(["pngquant", "--force", "--output", str(picture), "64", str(picture)], check=True, timeout=120)


if __name__ == "__main__":
    sys.exit(main())
