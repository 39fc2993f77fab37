#include "../include/dynmo_mpi.h"

#include <limits.h>

#include "table.h"

int32_t dynmo_mpi_pingpong(int32_t group, int32_t peer, int32_t first, const void *out, void *in, int64_t bytes,
                           int32_t messages, double *seconds) {
	MPI_Comm comm = group_at(group);
	if (comm == MPI_COMM_NULL)
		return DYNMO_MPI_HANDLE;
	if (bytes < 0 || bytes > INT_MAX)
		return MPI_ERR_COUNT;
	int n = (int)bytes, rc = MPI_SUCCESS;
	double start = MPI_Wtime();
	for (int32_t i = 0; i < messages && rc == MPI_SUCCESS; i++) {
		if (first)
			rc = MPI_Send(out, n, MPI_BYTE, peer, 0, comm);
		if (rc == MPI_SUCCESS)
			rc = MPI_Recv(in, n, MPI_BYTE, peer, 0, comm, MPI_STATUS_IGNORE);
		if (rc == MPI_SUCCESS && !first)
			rc = MPI_Send(in, n, MPI_BYTE, peer, 0, comm);
	}
	*seconds = (MPI_Wtime() - start) / (2.0 * messages);
	return rc;
}
