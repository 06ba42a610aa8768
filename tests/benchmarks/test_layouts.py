"""The picture of layouts over time: it is what the kept numbers say, and looking changes nothing."""

from xml.etree import ElementTree

from benchmarks.over_time.__main__ import replay
from benchmarks.over_time.jobs import Job, read_size
from benchmarks.over_time.layouts import COLOURS, PICTURE, POLICIES, Watched, drawn, main, svg
from benchmarks.over_time.product import Product
from benchmarks.over_time.timeline import Delays
from controller.config.settings import Settings

SIZE = read_size("nodes=1,gpus=1,model=H100-80GB")
JOBS = [Job(name=f"job-{n}", arrival=100.0 * n, profile="3g.40gb", duration=700.0) for n in range(3)]


def test_the_picture_is_fresh() -> None:
    assert PICTURE.read_text() == drawn()
    assert main(["--check"]) == 0


def test_layout_and_waiting_pods_are_seen_once_per_step() -> None:
    cluster = Watched(JOBS, SIZE)
    cluster.controller = Product(cluster, Settings())
    cluster.run(None)
    assert cluster.seen.layout["3g.40gb"][:3] == [0, 6, 6]
    assert cluster.seen.waiting["3g.40gb"][:3] == [1, 1, 1]  # the first as it comes, then the third
    assert not any(map(any, (numbers for name, numbers in cluster.seen.layout.items() if name != "3g.40gb")))

    unseen = replay("gpuplan", JOBS, SIZE, Delays(), settings=Settings(), seed=1, horizon=None)
    assert cluster.record.started == unseen.started


def test_areas_are_as_high_as_their_numbers() -> None:
    names = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
    series = {name: [7, 0] if name == "7g.80gb" else [0, 0] for name in names}
    root = ElementTree.fromstring(svg({"any": {"layout": series, "waiting": series}}, 7))
    areas = [one for one in root.iter("{http://www.w3.org/2000/svg}path") if one.get("fill") == COLOURS[-1]]
    layout = areas[0].attrib["d"].strip("MZ").split("L")
    assert layout == ["60.0 60.0", "480.0 180.0", "480.0 180.0", "60.0 180.0"]


def test_both_policies_are_kept() -> None:
    assert [f">{policy}</text>" in drawn() for policy in POLICIES] == [True, True]
