"""Event sets: registering GPUs in them and waiting for what befalls these.

A set lives in its process, the events on the machine. A wait polls the state and holds no lock meanwhile.
"""

from __future__ import annotations

import time

import pynvml

from sandbox.driver.abi.handles import Kind, decode, device_handle, encode, parent_device
from sandbox.driver.abi.pointers import checked, put_pointer, put_ulonglong, struct_at
from sandbox.driver.abi.registry import HANDLE, OUT, UINT, ULONGLONG, reads, waits
from sandbox.driver.abi.session import Registration, Session
from sandbox.driver.incidents import SUPPORTED_EVENTS
from sandbox.driver.state import EventState, MachineState
from sandbox.driver.status import Refused, Status, require

POLL_SECONDS = 0.05
NO_INSTANCE = 0xFFFFFFFF


@reads(OUT)
def nvmlEventSetCreate(session: Session, _: MachineState, created: int | None) -> None:
    checked(created)
    session.event_sets_made += 1
    session.event_sets[session.event_sets_made] = {}
    put_pointer(created, encode(Kind.EVENT_SET, generation=session.event_sets_made))


@reads(HANDLE)
def nvmlEventSetFree(session: Session, _: MachineState, handle: int | None) -> None:
    _registrations(session, handle)
    del session.event_sets[decode(handle).generation]


@reads(HANDLE, OUT)
def nvmlDeviceGetSupportedEventTypes(_: Session, machine: MachineState, handle: int | None, mask: int | None) -> None:
    parent_device(machine, handle)
    put_ulonglong(mask, SUPPORTED_EVENTS)


@reads(HANDLE, ULONGLONG, HANDLE)
def nvmlDeviceRegisterEvents(
    session: Session, machine: MachineState, handle: int | None, mask: int, event_set: int | None
) -> None:
    device = parent_device(machine, handle)
    registrations = _registrations(session, event_set)
    require(mask & ~SUPPORTED_EVENTS == 0, Status.NOT_SUPPORTED)
    events = device.gpu["events"]
    registrations[device.index] = Registration(mask, events[-1]["sequence"] if events else 0)


@waits(HANDLE, OUT, UINT)
def nvmlEventSetWait_v2(session: Session, handle: int | None, data: int | None, milliseconds: int) -> None:
    registrations = _registrations(session, handle)
    checked(data)
    end = time.monotonic() + milliseconds / 1000
    while True:
        with session.store.reading() as machine:
            found = _next_event(machine, registrations)
        if found is not None:
            _put_event(data, *found)
            return
        left = end - time.monotonic()
        if left <= 0:
            raise Refused(Status.TIMEOUT)
        time.sleep(min(left, POLL_SECONDS))


def _registrations(session: Session, handle: int | None) -> dict[int, Registration]:
    fields = decode(handle)
    require(fields.kind == Kind.EVENT_SET, Status.INVALID_ARGUMENT)
    registrations = session.event_sets.get(fields.generation)
    require(registrations is not None, Status.INVALID_ARGUMENT)
    assert registrations is not None
    return registrations


def _next_event(machine: MachineState, registrations: dict[int, Registration]) -> tuple[int, EventState] | None:
    for index, registration in sorted(registrations.items()):
        for event in machine["gpus"][index]["events"]:
            if event["sequence"] > registration.seen and event["type"] & registration.mask:
                registration.seen = event["sequence"]
                return index, event
    return None


def _put_event(data: int | None, index: int, event: EventState) -> None:
    answer = struct_at(data, pynvml.c_nvmlEventData_t)
    put_pointer(data, device_handle(index))  # the first field
    answer.eventType, answer.eventData = event["type"], event["data"]
    gpu_instance, compute_instance = event["gpu_instance"], event["compute_instance"]
    answer.gpuInstanceId = NO_INSTANCE if gpu_instance is None else gpu_instance
    answer.computeInstanceId = NO_INSTANCE if compute_instance is None else compute_instance
