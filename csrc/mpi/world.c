#include "../include/dynmo_mpi.h"

#include <stdio.h>
#include <stdlib.h>

#include "table.h"

/* Registers comm, with errors returned. */
static int32_t adopt(MPI_Comm comm, int32_t *group) {
	int rc = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	if (rc != MPI_SUCCESS)
		return rc;
	*group = group_new(comm);
	return *group < 0 ? DYNMO_MPI_MEMORY : 0;
}

void dynmo_mpi_library(char *text, int32_t size) {
	char name[MPI_MAX_LIBRARY_VERSION_STRING] = "";
	int length;
	MPI_Get_library_version(name, &length);
	snprintf(text, size, "%s", name);
}

int32_t dynmo_mpi_init(int32_t *group) {
	int running, level;
	setenv("OMPI_MCA_async_mpi_finalize", "1", 0); /* see leave.c */
	int rc = MPI_Initialized(&running);
	if (rc == MPI_SUCCESS)
		rc = running ? MPI_Query_thread(&level) : MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
	if (rc != MPI_SUCCESS)
		return rc;
	if (level < MPI_THREAD_SERIALIZED)
		return DYNMO_MPI_THREADS;
	MPI_Comm world;
	rc = MPI_Comm_dup(MPI_COMM_WORLD, &world);
	return rc != MPI_SUCCESS ? rc : adopt(world, group);
}

int32_t dynmo_mpi_rank(int32_t group, int32_t *rank, int32_t *size) {
	MPI_Comm comm = group_at(group);
	if (comm == MPI_COMM_NULL)
		return DYNMO_MPI_HANDLE;
	int r, n;
	int rc = MPI_Comm_rank(comm, &r);
	if (rc == MPI_SUCCESS)
		rc = MPI_Comm_size(comm, &n);
	if (rc != MPI_SUCCESS)
		return rc;
	*rank = r;
	*size = n;
	return 0;
}

int32_t dynmo_mpi_world_ranks(int32_t group, int32_t *world) {
	MPI_Comm comm = group_at(group);
	if (comm == MPI_COMM_NULL)
		return DYNMO_MPI_HANDLE;
	MPI_Group mine = MPI_GROUP_NULL, all = MPI_GROUP_NULL;
	int n, rc = MPI_Comm_group(comm, &mine);
	if (rc == MPI_SUCCESS)
		rc = MPI_Comm_group(MPI_COMM_WORLD, &all);
	if (rc == MPI_SUCCESS)
		rc = MPI_Group_size(mine, &n);
	for (int r = 0; rc == MPI_SUCCESS && r < n; r++) {
		int w;
		rc = MPI_Group_translate_ranks(mine, 1, &r, all, &w);
		world[r] = w;
	}
	if (mine != MPI_GROUP_NULL)
		MPI_Group_free(&mine);
	if (all != MPI_GROUP_NULL)
		MPI_Group_free(&all);
	return rc;
}

int32_t dynmo_mpi_split(int32_t group, int32_t color, int32_t key, int32_t *part) {
	MPI_Comm comm = group_at(group), out;
	if (comm == MPI_COMM_NULL)
		return DYNMO_MPI_HANDLE;
	int rc = MPI_Comm_split(comm, color < 0 ? MPI_UNDEFINED : color, key, &out);
	*part = -1;
	return rc != MPI_SUCCESS || out == MPI_COMM_NULL ? rc : adopt(out, part);
}

int32_t dynmo_mpi_free(int32_t group) {
	MPI_Comm comm = group_at(group);
	if (comm == MPI_COMM_NULL)
		return DYNMO_MPI_HANDLE;
	group_drop(group);
	return MPI_Comm_free(&comm);
}

int32_t dynmo_mpi_alloc(int64_t bytes, void **buf) {
	return MPI_Alloc_mem(bytes, MPI_INFO_NULL, buf);
}

int32_t dynmo_mpi_release(void *buf) {
	return MPI_Free_mem(buf);
}

int32_t dynmo_mpi_abort(int32_t status) {
	return MPI_Abort(MPI_COMM_WORLD, status);
}

void dynmo_mpi_error(int32_t status, char *text, int32_t size) {
	static const char *const own[] = {
		"no error",
		"MPI cannot be called from changing threads (MPI_THREAD_SERIALIZED is needed)",
		"out of memory",
		"no such group or request",
		"the MPI library runs on no libpmix.so.2",
		"the launcher could not be told (PMIx_Finalize)",
		"this MPI library ends all ranks together (Open MPI with async_mpi_finalize lets one end alone)",
	};
	if (status <= 0 && status >= DYNMO_MPI_STAY) {
		snprintf(text, size, "%s", own[-status]);
		return;
	}
	char name[MPI_MAX_ERROR_STRING];
	int length;
	if (MPI_Error_string(status, name, &length) == MPI_SUCCESS)
		snprintf(text, size, "%s", name);
	else
		snprintf(text, size, "MPI status %d", (int)status);
}
