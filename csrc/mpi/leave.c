#include "../include/dynmo_mpi.h"

#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* A rank leaves by MPI_Finalize: Open MPI then closes its connections with a farewell, and
 * with async_mpi_finalize waits for nobody. Over UCX MPI_Finalize waits for all ranks all
 * the same (4.1.4, 5.0.7, 6.0.0rc2). There a rank says goodbye to the launcher alone. */

/* Whether the MPI library has a control variable of this name; its first byte is *value. */
static int variable(const char *name, unsigned char *value) {
	int level, index, count, found;
	if (MPI_T_init_thread(MPI_THREAD_SINGLE, &level) != MPI_SUCCESS)
		return 0;
	found = MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS;
	if (found && value != NULL) {
		unsigned char bytes[64] = {0};
		MPI_T_cvar_handle handle;
		found = MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) == MPI_SUCCESS;
		if (found && count == 1)
			MPI_T_cvar_read(handle, bytes);
		if (found)
			MPI_T_cvar_handle_free(&handle);
		*value = bytes[0];
	}
	MPI_T_finalize();
	return found;
}

/* Whether messages go through UCX: a component that is not in use has no variables. */
static int over_ucx(void) {
	return variable("pml_ucx_priority", NULL);
}

/* Returns a function of the PMIx library, NULL if there is none. With RTLD_NOLOAD in flags
 * it is the library that the MPI library runs on: another copy would know no launcher. */
static void *pmix_function(const char *name, int flags) {
	void *library = dlopen("libpmix.so.2", RTLD_LAZY | flags);
	return library != NULL ? dlsym(library, name) : NULL;
}

typedef int (*pmix_finalize)(const void *info, size_t infos);

static pmix_finalize goodbye(void) {
	pmix_finalize found;
	*(void **)&found = pmix_function("PMIx_Finalize", RTLD_NOLOAD); /* POSIX allows it */
	return found;
}

void dynmo_mpi_pmix(char *text, int32_t size) {
	const char *(*version)(void);
	*(void **)&version = pmix_function("PMIx_Get_version", 0);
	snprintf(text, size, "%s", version != NULL ? version() : "");
}

int32_t dynmo_mpi_can_leave(void) {
	unsigned char set = 0;
	if (!variable("async_mpi_finalize", &set) || !set)
		return DYNMO_MPI_STAY;
	return over_ucx() && goodbye() == NULL ? DYNMO_MPI_PMIX : 0;
}

int32_t dynmo_mpi_leave(void) {
	if (!over_ucx())
		return MPI_Finalize();
	pmix_finalize finalize = goodbye();
	if (finalize == NULL)
		return DYNMO_MPI_PMIX;
	return finalize(NULL, 0) == 0 ? 0 : DYNMO_MPI_GOODBYE;
}

int32_t dynmo_mpi_finalize(void) {
	int rc = MPI_Barrier(MPI_COMM_WORLD);
	return rc != MPI_SUCCESS ? rc : MPI_Finalize();
}

void dynmo_mpi_exit(int32_t status) {
	int ended = 0;
	MPI_Finalized(&ended);
	if (ended)
		exit(status);
}
