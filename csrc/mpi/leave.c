#include "../include/dynmo_mpi.h"

#include <dlfcn.h>
#include <stddef.h>

typedef int (*pmix_finalize)(const void *info, size_t infos);

/* Returns PMIx_Finalize of the library that the MPI library runs on, NULL if none is
 * loaded: another copy would know no launcher. */
static pmix_finalize goodbye(void) {
	static const char *const names[] = {"libpmix.so.2", "libpmix.so"};
	pmix_finalize found = NULL;
	for (size_t i = 0; found == NULL && i < sizeof names / sizeof *names; i++) {
		void *library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
		if (library != NULL)
			*(void **)&found = dlsym(library, "PMIx_Finalize"); /* POSIX allows it */
	}
	return found;
}

int32_t dynmo_mpi_can_leave(void) {
	return goodbye() != NULL ? 0 : DYNMO_MPI_PMIX;
}

int32_t dynmo_mpi_leave(void) {
	pmix_finalize finalize = goodbye();
	if (finalize == NULL)
		return DYNMO_MPI_PMIX;
	return finalize(NULL, 0) == 0 ? 0 : DYNMO_MPI_GOODBYE;
}
