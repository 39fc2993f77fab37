#include "../include/dynmo_mpi.h"

#include <limits.h>
#include <time.h>

#include "table.h"

/* Makes a transfer of at most INT_MAX bytes, which is a send until its bytes are
 * set. It has no requests yet. */
static int32_t begin(MPI_Comm comm, int64_t bytes, double stamp, int32_t *request) {
	if (comm == MPI_COMM_NULL)
		return DYNMO_MPI_HANDLE;
	if (bytes < 0 || bytes > INT_MAX)
		return MPI_ERR_COUNT;
	if ((*request = transfer_new()) < 0)
		return DYNMO_MPI_MEMORY;
	*transfer_at(*request) = (struct transfer){{MPI_REQUEST_NULL, MPI_REQUEST_NULL}, stamp, -1, 0};
	return 0;
}

/* Returns rc. Unless it is 0, frees the requests of a transfer that has not begun.
 * Its entry of the table is not used again, since MPI may yet write into it. */
static int32_t begun(struct transfer *t, int rc) {
	for (int i = 0; rc != MPI_SUCCESS && i < 2; i++)
		if (t->request[i] != MPI_REQUEST_NULL)
			MPI_Request_free(&t->request[i]);
	return rc;
}

int32_t dynmo_mpi_send_begin(int32_t group, const void *buf, int64_t bytes, int32_t to, int32_t tag,
                             int32_t stamped, double stamp, int32_t *request) {
	MPI_Comm comm = group_at(group);
	int32_t rc = begin(comm, bytes, stamp, request);
	if (rc != 0)
		return rc;
	struct transfer *t = transfer_at(*request);
	rc = MPI_Isend(buf, (int)bytes, MPI_BYTE, to, tag, comm, &t->request[0]);
	if (rc == MPI_SUCCESS && stamped)
		rc = MPI_Isend(&t->stamp, 1, MPI_DOUBLE, to, tag, comm, &t->request[1]);
	return begun(t, rc);
}

int32_t dynmo_mpi_recv_begin(int32_t group, void *buf, int64_t bytes, int32_t from, int32_t tag,
                             int32_t stamped, int32_t *request) {
	MPI_Comm comm = group_at(group);
	int32_t rc = begin(comm, bytes, 0, request);
	if (rc != 0)
		return rc;
	struct transfer *t = transfer_at(*request);
	t->bytes = 0;
	rc = MPI_Irecv(buf, (int)bytes, MPI_BYTE, from, tag, comm, &t->request[0]);
	if (rc == MPI_SUCCESS && stamped)
		rc = MPI_Irecv(&t->stamp, 1, MPI_DOUBLE, from, tag, comm, &t->request[1]);
	return begun(t, rc);
}

/* Drives all transfers once. Returns 1 if t has ended; its status is valid then. */
static int ended(struct transfer *t) {
	int flag = 0, rc;
	if (t->request[0] != MPI_REQUEST_NULL) {
		MPI_Status status;
		int count;
		rc = MPI_Test(&t->request[0], &flag, &status);
		if (rc != MPI_SUCCESS) {
			/* MPI has freed the request. A stamp may still arrive, and is received below. */
			t->status = rc;
			t->request[0] = MPI_REQUEST_NULL;
		} else if (!flag) {
			return 0;
		} else if (t->bytes >= 0) {
			t->status = MPI_Get_count(&status, MPI_BYTE, &count);
			t->bytes = count;
		}
	}
	if (t->request[1] != MPI_REQUEST_NULL) {
		rc = MPI_Test(&t->request[1], &flag, MPI_STATUS_IGNORE);
		if (rc == MPI_SUCCESS && !flag)
			return 0;
		t->request[1] = MPI_REQUEST_NULL;
		if (t->status == 0)
			t->status = rc;
	}
	return 1;
}

/* Nanoseconds of a clock that only goes forward. */
static int64_t monotonic(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int32_t dynmo_mpi_test(int32_t request, int64_t nanoseconds, int32_t *done, double *stamp,
                       int64_t *bytes) {
	struct transfer *t = transfer_at(request);
	if (t == NULL)
		return DYNMO_MPI_HANDLE;
	*done = ended(t);
	if (!*done && nanoseconds > 0)
		for (int64_t end = monotonic() + nanoseconds; !(*done = ended(t)) && monotonic() < end;)
			;
	if (!*done)
		return 0;
	*stamp = t->stamp;
	*bytes = t->bytes;
	int32_t result = t->status;
	transfer_drop(request);
	return result;
}
