//go:build mpi

package mpi

// #include "../../../csrc/include/dynmo_mpi.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	gompi "github.com/sbromberger/gompi"

	"dynmo/src/comm"
)

// CheckLauncher returns an error if the launcher of this process cannot join its
// ranks: MPI would end each with dozens of lines, or make each a world of its own.
// Every rank has the same error. It may be called before Start.
func CheckLauncher() error { return checkLauncher(os.Getenv, Library, openMPIParts) }

// Library returns the name and version of the MPI library, in the library's own words. It may be
// called before Start.
func Library() string {
	var text [8192]C.char // MPI_MAX_LIBRARY_VERSION_STRING of MPICH; Open MPI's is 256
	C.dynmo_mpi_library(&text[0], C.int32_t(len(text)))
	return C.GoString(&text[0])
}

// PMIx returns the name and version of the system's PMIx library, in the library's own words; ""
// without one. It may be called before Start.
func PMIx() string {
	var text [256]C.char
	C.dynmo_mpi_pmix(&text[0], C.int32_t(len(text)))
	return C.GoString(&text[0])
}

// Start begins MPI and returns the world. It locks the calling goroutine,
// which owns MPI then, to its OS thread. A world of one rank where the
// launcher meant more is an error. Collective.
func Start() (comm.Transport, error) {
	if err := CheckLauncher(); err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	var group C.int32_t
	if err := check(C.dynmo_mpi_init(&group)); err != nil {
		return nil, fmt.Errorf("mpi: start: %w", err)
	}
	rank, size := gompi.WorldRank(), gompi.WorldSize()
	if err := checkAlone(size, os.Getenv); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("mpi: start: %w", err)
	}
	world := gompi.NewCommunicator(nil)
	peers, err := introduce(world, rank, size, host, os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("mpi: start: %w", err)
	}
	world.Barrier()
	return &transport{group: group, rank: rank, peers: peers}, nil
}

// hostWords hold a host name: Linux allows 64 bytes.
const hostWords = 8

// introduce returns every rank's host and process, on every rank. Each rank fills
// in its own row of a table of zeros; the result is the union of the tables. (gompi
// has no gather.) Collective.
func introduce(world *gompi.Communicator, rank, size int, host string, pid int) ([]comm.Peer, error) {
	const row = hostWords + 1
	mine, all := make([]uint64, row*size), make([]uint64, row*size)
	var name [8 * hostWords]byte
	copy(name[:], host)
	for i := range hostWords {
		mine[row*rank+i] = binary.LittleEndian.Uint64(name[8*i:])
	}
	mine[row*rank+hostWords] = uint64(pid)
	if err := world.AllreduceUint64s(all, mine, gompi.OpBor, 0); err != nil {
		return nil, err
	}
	peers := make([]comm.Peer, size)
	for r := range peers {
		words := all[row*r : row*(r+1)]
		for i, word := range words[:hostWords] {
			binary.LittleEndian.PutUint64(name[8*i:], word)
		}
		peers[r] = comm.Peer{World: r, Host: strings.TrimRight(string(name[:]), "\x00"), PID: int(words[hostWords])}
	}
	return peers, nil
}

// Agree returns the same error on every rank if the ranks do not all give one
// hash (of the binary, of the resolved configuration); what is its name. It runs
// on the world, so only before any rank has left. Collective.
func Agree(what string, hash [32]byte) error {
	world, rank, size := gompi.NewCommunicator(nil), gompi.WorldRank(), gompi.WorldSize()
	mine, first := make([]uint64, 4), make([]uint64, 4)
	for i := range mine {
		mine[i] = binary.LittleEndian.Uint64(hash[8*i:])
	}
	copy(first, mine)
	world.BcastUint64s(first, 0)
	differs, all := make([]uint64, size), make([]uint64, size)
	for i := range mine {
		if mine[i] != first[i] {
			differs[rank] = 1
		}
	}
	if err := world.AllreduceUint64s(all, differs, gompi.OpMax, 0); err != nil {
		return fmt.Errorf("mpi: agree on the %s: %w", what, err)
	}
	for r, other := range all {
		if other != 0 {
			return fmt.Errorf("mpi: rank %d has another %s than rank 0", r, what)
		}
	}
	return nil
}

// FirstRefusing returns the first rank that gives true, -1 if none does: one that
// found before the start that it cannot take part. It runs on the world, so only
// before any rank has left. Collective.
func FirstRefusing(refuses bool) (int, error) {
	world, rank, size := gompi.NewCommunicator(nil), gompi.WorldRank(), gompi.WorldSize()
	mine, all := make([]uint64, size), make([]uint64, size)
	if refuses {
		mine[rank] = 1
	}
	if err := world.AllreduceUint64s(all, mine, gompi.OpMax, 0); err != nil {
		return -1, fmt.Errorf("mpi: agree on who takes part: %w", err)
	}
	return slices.Index(all, 1), nil
}

// Stop ends MPI; groups are closed before. No rank of the world may be gone.
// Collective.
func Stop() error {
	if err := check(C.dynmo_mpi_finalize()); err != nil {
		return fmt.Errorf("mpi: stop: %w", err)
	}
	return nil
}
