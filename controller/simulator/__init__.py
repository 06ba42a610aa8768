"""Predicts whether kube-scheduler would put a pod on a node: its Filter semantics as pure functions.

Takes views and what is requested on the node already, and returns `FIT` or a DoesNotFit with the plugin's name and
kube-scheduler's own words, by the rules of one profile of its configuration. `filter_node` and `room_refusal` judge one
pod and one node. `ClusterState` judges all of it, with topology spread, inter-pod affinity and volumes, and is kept up
to date while pods are placed one after the other. What cannot be known passes, and is named as unknown.
"""
