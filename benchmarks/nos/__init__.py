"""Our planner on what nebuly-ai/nos recorded of its own: workloads (`baseline`) and test cases (`scenarios`)."""
