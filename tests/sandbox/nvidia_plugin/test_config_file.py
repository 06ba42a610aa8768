"""What NVIDIA's parser makes of a config file, and every error that it was measured to have."""

import pytest

from sandbox.nvidia_plugin.config_file import MPS, TIME_SLICING, UNMARSHAL, BadConfig, Config, parse

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
    ("text", "error"),
    [
        (HEAD + "sharing: {mps: {}}", f"{UNMARSHAL}no resources specified"),
        (HEAD + "sharing: {timeSlicing: {}}", f"{UNMARSHAL}no resources specified"),
        (HEAD + "sharing: {mps: {resources: []}}", f"{UNMARSHAL}no resources specified"),
        (mps("{replicas: 2}"), f"{UNMARSHAL}no resource name specified"),
        (mps("{name: gpu}"), f"{UNMARSHAL}no replicas specified"),
        (mps("{name: gpu, replicas: 1}"), f"{UNMARSHAL}number of replicas must be >= 2"),
        (mps("{name: gpu, replicas: -1}"), f"{UNMARSHAL}number of replicas must be >= 2"),
        (
            mps("{name: gpu, replicas: '4'}"),
            f"{UNMARSHAL}json: cannot unmarshal string into Go struct field Sharing.sharing.mps of type int",
        ),
        (
            mps("{name: gpu, replicas: 4.5}"),
            f"{UNMARSHAL}json: cannot unmarshal number 4.5 into Go struct field Sharing.sharing.mps of type int",
        ),
        (mps(f"{{name: {'g' * 60}, replicas: 2}}"), f"{UNMARSHAL}fully-qualified resource name must be 63 characters"),
        (mps("{name: GPU, replicas: 2}"), f"{UNMARSHAL}incorrect format for resource name 'nvidia.com/GPU'"),
        (
            mps("{name: amd.com/x, replicas: 2}"),
            f"{UNMARSHAL}incorrect format for resource name 'nvidia.com/amd.com/x'",
        ),
        (mps("{name: gpu, replicas: 2, devices: some}"), f"{UNMARSHAL}devices set as 'some' but the only valid string"),
        (
            mps("{name: gpu, replicas: 2, devices: 0}"),
            f"{UNMARSHAL}devices set as '0' but a count of devices must be > 0",
        ),
        (mps("{name: gpu, replicas: 2, devices: [x]}"), f"{UNMARSHAL}unsupported type for device in devices list: x"),
        (mps("{name: gpu, replicas: 2, devices: {}}"), f"{UNMARSHAL}unrecognized type for devices spec"),
        (HEAD + "resources: {gpus: [{name: gpu}]}", f"{UNMARSHAL}resources must have a 'pattern' field set"),
        ("version: v2", "unknown version: v2"),
    ],
)
def test_refused(text: str, error: str) -> None:
    with pytest.raises(BadConfig) as refused:
        parse(text)
    assert str(refused.value).startswith(error)
