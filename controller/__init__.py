"""Plans GPU partitions for pending pods and writes them into GPUPartitionPlans."""
