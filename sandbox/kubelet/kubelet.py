"""One kubelet stand-in: its sockets, its threads, its start and its end.

In: a node's name, a folder, the API. Out: what a real kubelet shows around itself: kubelet.sock, pod-resources, the checkpoint, pods that
run and finish, a node status that follows its device plugins at the tick. `stop` and `kill` leave dead sockets behind,
as a real one does; a new Kubelet on the same folder and runtime is the restart.
"""

import itertools
import logging
import threading
import zlib
from pathlib import Path
from random import Random

from kube.kubelet_api import deviceplugin_pb2_grpc, podresources_pb2_grpc
from kube.kubelet_api.paths import KubeletPaths
from sandbox.kubelet.admission import Admission
from sandbox.kubelet.allocation import Allocator
from sandbox.kubelet.api import KubeletApi, Outcome
from sandbox.kubelet.checkpoint import Checkpoint, CheckpointFile
from sandbox.kubelet.clock import Clock
from sandbox.kubelet.devices import DeviceTable
from sandbox.kubelet.endpoints import Endpoints
from sandbox.kubelet.loop import SyncLoop
from sandbox.kubelet.node_status import NodeReading, heartbeat_patch, invented_ip, status_patch
from sandbox.kubelet.podbook import PodBook
from sandbox.kubelet.podresources import PodResources, RateLimit
from sandbox.kubelet.pods import Pod
from sandbox.kubelet.registration import Registration
from sandbox.kubelet.runtime import ScriptedRuntime
from sandbox.kubelet.settings import Switches, Timings
from sandbox.kubelet.sockets import SocketServer, remove_sockets
from sandbox.kubelet.starts import ContainerStarts
from sandbox.kubelet.workers import PodWorkers, Surroundings
from sandbox.kubelet.writer import ApiWriter
