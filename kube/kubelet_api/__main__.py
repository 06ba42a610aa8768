"""Runs the generator of the modules in this folder: it needs development tools, and is no part of what ships."""

import runpy

runpy.run_module("deploy.generate.kubelet_api", run_name="__main__", alter_sys=True)
