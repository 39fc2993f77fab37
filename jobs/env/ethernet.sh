# shellcheck shell=bash
# No fast network: Open MPI over TCP between nodes, shared memory within one.
export OMPI_MCA_pml=ob1
export OMPI_MCA_btl=self,vader,tcp

# The network between the nodes, or Open MPI may try docker0, virbr0 and others, and
# wait: give it as a subnet, since interfaces may be called differently on each node.
# Debian testing's Open MPI 6 takes lo alone, in /etc/openmpi/openmpi-mca-params.conf: there
# the line is needed.
# export OMPI_MCA_btl_tcp_if_include=10.0.0.0/16
# export NCCL_SOCKET_IFNAME=eth0
