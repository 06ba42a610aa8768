"""What NVIDIA's parser makes of a config file, and all that it was measured to refuse."""

import pytest

from sandbox.nvidia_plugin.config_file import MPS, TIME_SLICING, BadConfig, Config, parse

HEAD = "version: v1\n"


def mps(entry: str, more: str = "") -> str:
    return f"{HEAD}sharing: {{mps: {{{more}resources: [{entry}]}}}}"


GPU = ("nvidia.com/gpu", 4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Config()),
        (HEAD, Config()),
        (HEAD + "sharing: {mps: null}", Config()),
        (HEAD + "nonsense: 1\nflags: {migStrategy: mixed}", Config(mig_strategy="mixed")),
        (mps("{name: gpu, replicas: 4}"), Config(strategy=MPS, replicas=(GPU,), one_per_request=True)),
        (
            mps(
                "{name: nvidia.com/gpu, replicas: 4, rename: gpu.x, devices: [0], memoryGB: 1}",
                "renameByDefault: true, ",
            ),
            Config(strategy=MPS, replicas=(GPU,), renamed=True, one_per_request=True),
        ),
        (mps("{name: gpu, replicas: 4}", "failRequestsGreaterThanOne: false, "), Config(strategy=MPS, replicas=(GPU,))),
        (
            mps("{name: gpu, replicas: 4}, {name: gpu, replicas: 2}"),
            Config(strategy=MPS, replicas=(GPU,), one_per_request=True),
        ),
        (
            mps("{name: gpu, replicas: 100000}"),
            Config(strategy=MPS, replicas=(("nvidia.com/gpu", 100000),), one_per_request=True),
        ),
        (
            HEAD + "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 4}]}}",
            Config(strategy=TIME_SLICING, replicas=(GPU,)),
        ),
        (
            f"{mps('{name: gpu, replicas: 4}')[:-1]}, timeSlicing: {{resources: [{{name: gpu, replicas: 2}}]}}}}",
            Config(strategy=MPS, replicas=(GPU,), one_per_request=True),
        ),
    ],
)
def test_accepted(text: str, expected: Config) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (HEAD + "sharing: {mps: {}}", "sharing.mps"),
        (HEAD + "sharing: {timeSlicing: {}}", "sharing.timeSlicing"),
        (HEAD + "sharing: {mps: {resources: []}}", "sharing.mps"),
        (mps("{replicas: 2}"), "sharing.mps"),
        (mps("{name: gpu}"), "sharing.mps"),
        (mps("{name: gpu, replicas: 1}"), "sharing.mps"),
        (mps("{name: gpu, replicas: -1}"), "sharing.mps"),
        (mps("{name: gpu, replicas: '4'}"), "sharing.mps"),
        (mps("{name: gpu, replicas: 4.5}"), "sharing.mps"),
        (mps("{name: gpu, replicas: true}"), "sharing.mps"),
        (mps(f"{{name: {'g' * 60}, replicas: 2}}"), "sharing.mps"),
        (mps("{name: GPU, replicas: 2}"), "sharing.mps"),
        (mps("{name: amd.com/x, replicas: 2}"), "sharing.mps"),
        (mps("{name: gpu, replicas: 2, devices: some}"), "sharing.mps"),
        (mps("{name: gpu, replicas: 2, devices: 0}"), "sharing.mps"),
        (mps("{name: gpu, replicas: 2, devices: [x]}"), "sharing.mps"),
        (mps("{name: gpu, replicas: 2, devices: {}}"), "sharing.mps"),
        (mps("{name: gpu, replicas: 2}", "renameByDefault: 1, "), "sharing.mps"),
        (HEAD + "resources: {gpus: [{name: gpu}]}", "resources.gpus[0]"),
        ("version: v2", "unknown version: v2"),
        ("a: [", "unmarshal error: "),
    ],
)
def test_refused(text: str, where: str) -> None:
    with pytest.raises(BadConfig) as refused:
        parse(text)
    assert where in str(refused.value)
