#include "../include/dynmo_nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "library.h"

struct library dynmo_nccl_library;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int32_t opened; /* the result of dynmo_nccl_open */
static int version;
static char complaint[512]; /* why the library cannot be used */

/* Returns NULL, and complains, if there is no such symbol. */
static void *find(void *handle, const char *symbol) {
	void *f = dlsym(handle, symbol);
	if (f == NULL)
		snprintf(complaint, sizeof complaint, "%s", dlerror());
	return f;
}

/* POSIX lets a function's address be kept as an object's. */
#define FIND(result, member, symbol, parameters)                                                                       \
	if ((*(void **)&dynmo_nccl_library.member = find(handle, symbol)) == NULL)                                         \
		return DYNMO_NCCL_LIBRARY;
#define FIND_LATER(result, member, symbol, parameters) *(void **)&dynmo_nccl_library.member = dlsym(handle, symbol);

static int32_t load(void) {
	const char *name = getenv("DYNMO_NCCL_LIBRARY");
	if (name == NULL || *name == 0)
		name = "libnccl.so.2";
	unsetenv("NCCL_COMM_BLOCKING"); /* It would override the configuration: owners could not abort. */
	void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (handle == NULL) {
		snprintf(complaint, sizeof complaint, "%s", dlerror());
		return DYNMO_NCCL_LIBRARY;
	}
	int (*get_version)(int *);
	if ((*(void **)&get_version = find(handle, "ncclGetVersion")) == NULL)
		return DYNMO_NCCL_LIBRARY;
	int rc = get_version(&version);
	if (rc != NCCL_SUCCESS)
		return rc;
	if (version < DYNMO_NCCL_WANTED)
		return DYNMO_NCCL_OLD;
	NCCL_FUNCTIONS(FIND)
	NCCL_LATER(FIND_LATER)
	return 0;
}

static void load_once(void) {
	opened = load();
}

int32_t dynmo_nccl_open(int32_t *v) {
	pthread_once(&once, load_once);
	*v = version;
	return opened;
}

struct name {
	char text[40];
};

/* Names a version code. Up to 2.8 it had one digit for the minor version. */
static struct name version_name(int v) {
	struct name n;
	int major = v < 10000 ? 1000 : 10000;
	snprintf(n.text, sizeof n.text, "%d.%d.%d", v / major, v % major / 100, v % 100);
	return n;
}

void dynmo_nccl_error(const dynmo_nccl *k, int32_t status, char *text, int32_t size) {
	const struct library *l = &dynmo_nccl_library;
	if (status == DYNMO_NCCL_LIBRARY) {
		snprintf(text, size, "no NCCL library: %s", complaint);
	} else if (status == DYNMO_NCCL_OLD) {
		snprintf(text, size, "the NCCL library is version %s; %s or later is needed", version_name(version).text,
		         version_name(DYNMO_NCCL_WANTED).text);
	} else if (status == DYNMO_NCCL_ABSENT) {
		snprintf(text, size, "NCCL %s cannot do this", version_name(version).text);
	} else if (status == DYNMO_NCCL_MEMORY) {
		snprintf(text, size, "out of memory");
	} else if (l->error_string == NULL) {
		snprintf(text, size, "NCCL result %d", (int)status);
	} else {
		const char *last = k == NULL || k->comm == NULL ? NULL : l->last_error(k->comm);
		int known = last != NULL && *last != 0;
		snprintf(text, size, "%s%s%s", l->error_string(status), known ? ": " : "", known ? last : "");
	}
}
