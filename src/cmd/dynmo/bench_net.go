package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dynmo/src/comm"
	"dynmo/src/comm/mpi"
	"dynmo/src/device"
	devcpu "dynmo/src/device/cpu"
	"dynmo/src/kernel/ref"
	"dynmo/src/nodebench"
	"dynmo/src/nodebench/verdict"
	"dynmo/src/tensor"
)

const (
	// benchPatience is how long a rank waits for a rank on another host, which checks its own
	// messages.
	benchPatience = 30 * time.Second
	// longestMessage is the longest message that both ways of sending carry in one piece.
	longestMessage = 1 << 30
)

// benchNet returns the command that measures messages between two ranks.
func benchNet(flags *benchFlags) *cobra.Command {
	shortest, longest := int64(64), int64(64<<20)
	c := &cobra.Command{
		Use:   "net",
		Short: "Messages between two ranks, and layers that move, against plain C",
		Long: `Messages between two ranks (mpirun -n 2 dynmo bench net), and layers that move from one to
the other, against plain C: a ping-pong of MPI_Send and MPI_Recv on the same memory, whose
rounds alternate with ours.

message_LENGTH is our time (or bandwidth) of one message of a ping-pong, message_c_LENGTH
that of plain C, message_ratio_LENGTH the second over the first. migrate_* moves a block of
GPT-2 124M with its optimizer state to the other stage, dense and with one weight in ten kept.
It is the bytes over the whole time of the move. It is compared with the bandwidth in C of
messages as long as the longest of the layer's parts, over memory as large as the layer. A
layer takes the memory that the layer before it left; migrate_first_* is the first, which finds
none. Messages or layers that arrive changed are wrong.

The benchmark measures how MPI joins these two ranks. On one host that is shared memory. Open
MPI copies a message once if the system lets a process read another's memory. In containers it
often copies twice, as with OMPI_MCA_btl_vader_single_copy_mechanism=none. Between hosts it is
the network.

If others took cores of a host that the measurement wanted, the verdict is BUSY: nothing is
judged, and the status is 4, as that of dynmo bench node.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			lengths, err := flags.lengths(shortest, longest)
			if err != nil {
				leaveItToRank0(err)
				return usageError{err}
			}
			return flags.underMPI(c, lengths)
		},
	}
	c.Flags().Int64Var(&shortest, "min", shortest, "bytes of the shortest messages, a multiple of 8; each next is four times as long")
	c.Flags().Int64Var(&longest, "max", longest, "bytes of the longest messages, at most 1 GiB")
	return c
}

// lengths returns the lengths of messages that the flags ask for. It checks the flags and the
// launcher first.
func (f *benchFlags) lengths(shortest, longest int64) ([]int64, error) {
	if _, err := f.newClock(); err != nil {
		return nil, err
	}
	switch {
	case f.clock != "wall" || f.threads != 1:
		return nil, errors.New("bench net measures messages: want --clock wall and --threads 1")
	case shortest < 8 || shortest%8 != 0:
		return nil, fmt.Errorf("--min %d: want a multiple of 8, at least 8", shortest)
	case longest < shortest || longest > longestMessage:
		return nil, fmt.Errorf("--max %d: want %d (--min) to %d", longest, shortest, longestMessage)
	case !mpi.Launched():
		return nil, errors.New("bench net wants two ranks: mpirun -n 2 dynmo bench net")
	}
	return nodebench.NetLengths(shortest, longest), nil
}

// underMPI measures as one of two processes. A verdict that both ranks share is printed once.
func (f *benchFlags) underMPI(c *cobra.Command, lengths []int64) error {
	started := mpi.Within(time.Minute, func(err error) { quit(tell(c.Root().Name(), err, c.ErrOrStderr())) })
	t, err := mpi.Start()
	started()
	if err != nil {
		leaveItToRank0(err)
		return usageError{err}
	}
	judged, err := f.net(c, t, lengths)
	if err == nil {
		err = t.Close()
	}
	if err != nil {
		who := t.Peer(t.Rank())
		err = fmt.Errorf("rank %d (host %s): %w", who.World, who.Host, err)
		t.Abort(tell(c.Root().Name(), err, c.ErrOrStderr()))
	}
	if err := mpi.Stop(); err != nil {
		return err
	}
	leaveItToRank0(judged)
	return judged
}

// net measures between two ranks and prints on rank 0. judged judges the figures and is the same
// on both ranks; err is this rank's own.
func (f *benchFlags) net(c *cobra.Command, t comm.Transport, lengths []int64) (judged, err error) {
	if t.Size() != 2 {
		return usageError{fmt.Errorf("bench net wants two ranks, has %d", t.Size())}, nil
	}
	world := comm.New(t, comm.Options{Deadline: benchPatience})
	plain := func(peer int, out, in tensor.Mem, messages int) (float64, error) {
		return mpi.PingPong(t, peer, out, in, messages)
	}
	rounds := nodebench.Rounds{Count: f.rounds}
	if t.Rank() == 0 {
		rounds.Bar = barOf(c)
	}
	results, err := nodebench.Net(world, plain, ref.New(tensor.F32), devcpu.New(device.NewWall()), lengths, rounds)
	if err != nil {
		return nil, err
	}
	f.machine.Threads = 1
	busy := ""
	if f.watch.Disturbed(f.machine.Threads) != "" {
		busy = nodeName()
	}
	all, err := world.Allgather([]byte(busy))
	if err != nil {
		return nil, err
	}
	if t.Rank() == 0 {
		judged = f.judgeNet(c, results, all)
	}
	return share(world, judged)
}

// judgeNet prints figures, and returns an error if any is invalid, too low, or not judged. busy has the name
// of each rank's host if others used it, and an empty text if not.
func (f *benchFlags) judgeNet(c *cobra.Command, results []nodebench.Result, busy [][]byte) error {
	var names []string
	for _, name := range busy {
		if len(name) > 0 && !slices.Contains(names, string(name)) {
			names = append(names, string(name))
		}
	}
	for i := range results {
		results[i].Busy = names != nil
	}
	if err := f.report(c, results); err != nil || names == nil {
		return err
	}
	return nodeError{fmt.Errorf("not judged, because hosts were busy: %s", strings.Join(names, ", ")), verdict.CannotJudge.Status()}
}
