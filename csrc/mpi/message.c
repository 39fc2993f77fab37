#include "../include/dynmo_mpi.h"

#include <limits.h>
#include <time.h>

#include "table.h"

/* Lets go of what a failed begin left under way and gives the error on. The
 * entry of the table is not used again, since MPI may yet write into it. */
static int32_t give_up(int32_t request, int32_t rc) {
	struct transfer *t = transfer_at(request);
	for (int i = 0; i < 2; i++)
		if (t->request[i] != MPI_REQUEST_NULL)
			MPI_Request_free(&t->request[i]);
	return rc;
}

int32_t dynmo_mpi_send_begin(int32_t group, const void *buf, int64_t bytes, int32_t to, int32_t tag,
                             int32_t stamped, double stamp, int32_t *request) {
	MPI_Comm comm = group_at(group);
	if (comm == MPI_COMM_NULL)
		return DYNMO_MPI_HANDLE;
	if (bytes < 0 || bytes > INT_MAX)
		return MPI_ERR_COUNT;
	if ((*request = transfer_new()) < 0)
		return DYNMO_MPI_MEMORY;
	struct transfer *t = transfer_at(*request);
	t->request[0] = t->request[1] = MPI_REQUEST_NULL;
	t->stamp = stamp;
	t->bytes = -1;
	t->status = 0;
	int rc = MPI_Isend(buf, (int)bytes, MPI_BYTE, to, tag, comm, &t->request[0]);
	if (rc == MPI_SUCCESS && stamped)
		rc = MPI_Isend(&t->stamp, 1, MPI_DOUBLE, to, tag, comm, &t->request[1]);
	return rc == MPI_SUCCESS ? 0 : give_up(*request, rc);
}

int32_t dynmo_mpi_recv_begin(int32_t group, void *buf, int64_t bytes, int32_t from, int32_t tag,
                             int32_t stamped, int32_t *request) {
	MPI_Comm comm = group_at(group);
	if (comm == MPI_COMM_NULL)
		return DYNMO_MPI_HANDLE;
	if (bytes < 0 || bytes > INT_MAX)
		return MPI_ERR_COUNT;
	if ((*request = transfer_new()) < 0)
		return DYNMO_MPI_MEMORY;
	struct transfer *t = transfer_at(*request);
	t->request[0] = t->request[1] = MPI_REQUEST_NULL;
	t->stamp = 0;
	t->bytes = 0;
	t->status = 0;
	int rc = MPI_Irecv(buf, (int)bytes, MPI_BYTE, from, tag, comm, &t->request[0]);
	if (rc == MPI_SUCCESS && stamped)
		rc = MPI_Irecv(&t->stamp, 1, MPI_DOUBLE, from, tag, comm, &t->request[1]);
	return rc == MPI_SUCCESS ? 0 : give_up(*request, rc);
}

/* Drives all transfers once. Returns 1 if t has ended; its status then says how. */
static int ended(struct transfer *t) {
	int flag = 0, rc;
	if (t->request[0] != MPI_REQUEST_NULL) {
		MPI_Status status;
		int count;
		rc = MPI_Test(&t->request[0], &flag, &status);
		if (rc != MPI_SUCCESS) {
			/* MPI has freed the request. A stamp may still come, and is taken below. */
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
static int64_t now(void) {
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
		for (int64_t end = now() + nanoseconds; !(*done = ended(t)) && now() < end;)
			;
	if (!*done)
		return 0;
	*stamp = t->stamp;
	*bytes = t->bytes;
	int32_t result = t->status;
	transfer_drop(request);
	return result;
}
