# Variables of Open MPI's launcher. Sourced by scripts that start more ranks than cores.

# mpi_environment lets mpirun start more ranks than cores, as root too, and in a container.
# Open MPI 4.1 reads the names with OMPI, 5 and 6 those with PRTE; each ignores the others'
# names. Version 6 warns of the two longer ones unless the shorter ones are there too. Ranks
# that wait give their core to others. Open MPI may not copy between the processes of a
# container: btl_vader is the name of 4.1, smsc that of 5 and 6. Version 5 finds networks
# unreachable whose routes it cannot ask for, and says so for each pair of ranks.
mpi_environment() {
	export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
	export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_mapby=:oversubscribe
	export PRTE_MCA_hwloc_default_binding_policy=none PRTE_MCA_bindto=none
	export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_reachable=weighted
	export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma
	[ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
}
