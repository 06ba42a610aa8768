"""Manifests from files, folders and standard input; what is wrong is named by file, document, field and remedy."""

import io
from pathlib import Path

import pytest

from cli.manifests import ManifestError
from sandbox.cli.manifests import load, load_located, refused

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n"
NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: n, labels: {nvidia.com/gpu.product: NVIDIA-A30}}\n"
PLAN = "apiVersion: gpuplan.dev/v1alpha1\nkind: GPUPartitionPlan\nmetadata: {name: n}\nspec: {nodeName: n}\n"


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_objects_come_in_the_order_in_which_they_can_be_created(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", POD + "---\n" + PLAN)
    write(tmp_path, "b.yml", "---\n---\n" + NODE)
    write(tmp_path, "notes.txt", "not: read")

    assert [body["kind"] for body in load([str(tmp_path)])] == ["Node", "GPUPartitionPlan", "Pod"]


def test_standard_input_and_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    item = "\n".join("  " + line for line in POD.splitlines())
    monkeypatch.setattr("sys.stdin", io.StringIO(f"apiVersion: v1\nkind: List\nitems:\n-{item[1:]}\n"))

    assert [body["metadata"]["name"] for body in load(["-"])] == ["p"]


def test_time_stamps_stay_text(tmp_path: Path) -> None:
    path = write(tmp_path, "p.yaml", POD.replace("{name: p}", "{name: p, creationTimestamp: 2026-01-01T00:00:00Z}"))

    assert load([path])[0]["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("a: [", "f.yaml: is not valid YAML: .*line 2", id="yaml"),
        pytest.param("just text", "document 0: apiVersion, kind: .* known: v1 Namespace", id="no-mapping"),
        pytest.param(
            POD.replace("Pod", "Deployment"), "'v1' 'Deployment' cannot be used here; known: .*v1 Pod", id="kind"
        ),
        pytest.param(
            "---\n" + POD + "---\n" + POD.replace("p}", "P_}"), r"document 1: metadata\.name: .*lower", id="name"
        ),
        pytest.param(
            POD.replace("containers", "container"), "spec: 'containers' is a required property", id="containers"
        ),
        pytest.param(
            POD.replace("image: i", "resources: {limits: {nvidia.com/gpu-10gb: one}}"),
            r"spec\.containers\[0\]\.resources\.limits\.nvidia\.com/gpu-10gb: .*A quantity is a number",
            id="quantity",
        ),
        pytest.param(
            POD.replace("image: i", "command: [sleep, 5]"),
            r"spec\.containers\[0\]\.command\[1\]: 5 is not of type 'string'. Quote the value",
            id="command",
        ),
        pytest.param(
            NODE.replace("NVIDIA-A30", "NVIDIA-Z9"),
            r"metadata\.labels\[nvidia\.com/gpu\.product\]: unknown GPU product 'NVIDIA-Z9'; the sandbox knows: ",
            id="product",
        ),
        pytest.param(
            NODE.replace("NVIDIA-A30", "1"), r"metadata\.labels\.nvidia\.com/gpu\.product: 1 is .* Quote", id="label"
        ),
        pytest.param(
            PLAN.replace("nodeName: n", "nodeName: n, pausd: true"), "spec: .*'pausd' was unexpected", id="typo"
        ),
        pytest.param(
            PLAN.replace("nodeName: n", "nodeName: n, gpus: [{index: 0, mps: {slices: [{memoryGB: 0}]}}]"),
            r"spec\.gpus\[0\]\.mps\.slices\[0\]\.memoryGB: 0 is less than the minimum of 1",
            id="memory",
        ),
        pytest.param(
            POD.replace("name: p", "name: P_"),
            r"metadata\.name: 'P_' does not match .* A name has lower-case letters, digits, - and dots\.$",
            id="name",
        ),
        pytest.param(
            POD + "---\n" + POD, r"document 1: metadata\.name: Pod 'p' is already in .*document 0", id="twice"
        ),
    ],
)
def test_a_bad_file_is_reported_with_the_place_and_the_remedy(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ManifestError, match=words):
        load([write(tmp_path, "f.yaml", text)])


def test_every_problem_is_listed_at_once(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", POD.replace("Pod", "Job"))
    write(tmp_path, "b.yaml", POD.replace("containers", "container"))

    with pytest.raises(ManifestError) as caught:
        load([str(tmp_path)])

    assert len(str(caught.value).splitlines()) == 2


def test_a_missing_file_and_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="no such file or folder"):
        load([str(tmp_path / "none.yaml")])
    with pytest.raises(ManifestError, match=r"no \.yaml, \.yml, \.json file"):
        load([str(tmp_path)])


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("folder", sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir()))
def test_every_example_loads(folder: str) -> None:
    assert load([str(EXAMPLES / folder)])


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    write(tmp_path, "p.yaml", POD)
    assert len(load([str(tmp_path)])) == 1  # a folder of that name is no file

    (tmp_path / "lost.yaml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ManifestError, match=r"lost\.yaml: cannot be read: No such file"):
        load([str(tmp_path)])


@pytest.mark.parametrize("text", ["", "---\n# nothing\n", "apiVersion: v1\nkind: List\nitems: []\n"])
def test_files_without_an_object_are_reported(tmp_path: Path, text: str) -> None:
    with pytest.raises(ManifestError, match=r"f\.yaml: no Kubernetes object in it"):
        load([write(tmp_path, "f.yaml", text)])


def test_a_kind_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="document 0: apiVersion, kind: "):
        load([write(tmp_path, "f.yaml", "apiVersion: v1\nkind: {a: b}\n")])


def test_a_refusal_of_the_api_server_names_the_place(tmp_path: Path) -> None:
    manifests = load_located([write(tmp_path, "f.yaml", NODE + "---\n" + POD)])
    body = {"kind": "Pod", "metadata": {"name": "p", "namespace": "default"}}
    assert str(refused(manifests, body, "no")) == f"{tmp_path}/f.yaml: document 1: no"
    assert str(refused(manifests, {**body, "metadata": {"name": "other"}}, "no")) == "no"
