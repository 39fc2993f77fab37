/* Tables of groups and requests, so that no MPI type crosses the boundary. */
#ifndef DYNMO_MPI_TABLE_H
#define DYNMO_MPI_TABLE_H

#include <mpi.h>
#include <stdint.h>

/* A transfer: the message, and the stamp that follows it in a stamped group.
 * MPI writes into it while it is under way, so it never moves. */
struct transfer {
	MPI_Request request[2]; /* message, stamp; MPI_REQUEST_NULL when done */
	double stamp;
	int64_t bytes;          /* receive: received, once it is done; send: -1 */
	int32_t status;         /* of the message, once it is done */
};

/* An index, or -1 without memory. */
int32_t transfer_new(void);
/* NULL if there is none. */
struct transfer *transfer_at(int32_t index);
void transfer_drop(int32_t index);

int32_t group_new(MPI_Comm comm);
/* MPI_COMM_NULL if there is none. */
MPI_Comm group_at(int32_t index);
void group_drop(int32_t index);

#endif
