package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dynmo/src/comm"
	"dynmo/src/comm/mpi"
	"dynmo/src/files"
	"dynmo/src/nodebench/verdict"
)

// benchPairs returns the command that measures every pair of nodes.
func benchPairs(flags *benchFlags) *cobra.Command {
	n := &nodeFlags{bench: flags, name: "pairs", limit: time.Minute}
	var leaf map[string]string
	c := &cobra.Command{
		Use:   "pairs",
		Short: "Measure messages between every pair of nodes, and name the slow node or switch",
		Long: `Measure messages between every pair of nodes (srun or mpirun dynmo bench pairs, one
process a node), and name the slow ones. The statuses are those of dynmo bench node. A pair
counts if both hosts were idle enough; a disturbed pair meets again.

Pairs meet in the rounds of a tournament, so that no node is in two pairs at a time: n nodes
have n - 1 rounds. A pair is as slow as its slower end, so a node has the median of its pairs.
With --topology, Slurm's topology.conf, every two leaf switches have the median of the pairs
between them. Nodes are held against each other, from five on, as by dynmo bench node;
so are pairs of switches.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			err := func() (err error) {
				switch {
				case !mpi.Launched():
					return errors.New("bench pairs wants several nodes: srun or mpirun dynmo bench pairs")
				case n.bench.clock != "wall" || c.Flags().Changed("threads") || c.Flags().Changed("rounds"):
					return errors.New("bench pairs measures messages: want no --clock, --threads or --rounds")
				case n.limit < time.Second:
					return fmt.Errorf("--limit %v: want at least 1s", n.limit)
				case n.topology != "":
					text, err := files.Read(n.topology, files.Network)
					if err != nil {
						return err
					}
					if leaf, err = verdict.Leaves(string(text)); err != nil {
						return fmt.Errorf("%s: %w", n.topology, err)
					}
				}
				return n.files(c)
			}()
			if err != nil {
				leaveItToRank0(err)
				return usageError{err}
			}
			n.measured = time.Now()
			return n.inWorld(c, func(w *nodeWorld, r *recorder) (judged, err error) { return n.allPairs(c, w, r, leaf) })
		},
	}
	n.outputs(c)
	c.Flags().DurationVar(&n.limit, "limit", n.limit, "longest time of one pair")
	c.Flags().StringVar(&n.topology, "topology", "", "Slurm's topology.conf: pairs of leaf switches are judged too")
	return c
}

// allPairs measures every pair and judges on rank 0.
func (n *nodeFlags) allPairs(c *cobra.Command, w *nodeWorld, r *recorder, leaf map[string]string) (judged, err error) {
	if len(w.hosts) == 1 {
		processes := map[int]string{1: "the only process runs", 2: "both processes run"}[w.Size()]
		return usageError{fmt.Errorf("%s on %s: start one on each of at least 2 nodes", cmp.Or(processes, fmt.Sprintf("all %d processes run", w.Size())), w.hosts[0])}, nil
	}
	rounds := verdict.Tournament(len(w.hosts))
	r.parts = len(rounds)
	mine, err := n.meet(w, r, rounds)
	r.idle()
	var all gathered
	if err == nil {
		all, err = w.gather(gathered{Pairs: mine})
	} else {
		all.Pairs = mine
	}
	if w.Rank() == 0 {
		rows := append(verdict.PairRows(all.Pairs, true), verdict.SwitchRows(all.Pairs, leaf)...)
		judged = n.conclude(c, rows, all.Pairs, w.hosts)
	}
	return judged, err
}

// inWorld starts MPI and runs measure on all ranks. Every rank returns rank 0's verdict.
func (n *nodeFlags) inWorld(c *cobra.Command, measure func(*nodeWorld, *recorder) (judged, err error)) error {
	started := mpi.Within(time.Minute, func(err error) { quit(tell(c.Root().Name(), err, c.ErrOrStderr())) })
	t, err := mpi.Start()
	started()
	if err != nil {
		leaveItToRank0(err)
		return usageError{err}
	}
	r, err := n.newRecorder(t.Rank())
	if err != nil {
		t.Abort(tell(c.Root().Name(), usageError{err}, c.ErrOrStderr()))
	}
	r.bar = barOf(c)
	// Ranks wait for each other as long as about ten checks may take on a node.
	w := newNodeWorld(t, 10*n.limit+n.burn)
	r.watch = n.watch(w.siblings()...)
	r.expired = func(row verdict.Row) {
		quit(tell(c.Root().Name(), n.late(row), c.ErrOrStderr())) // no abort: the other ranks go on if their launcher allows it
	}
	judged, err := measure(w, r)
	if err == nil {
		judged, err = share(w.Group, judged)
	}
	if err != nil && w.Rank() != 0 {
		tell(c.Root().Name(), err, c.ErrOrStderr())
		quit(exitFailure)
	}
	if err != nil {
		t.Abort(tell(c.Root().Name(), errors.Join(err, judged), c.ErrOrStderr()))
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := mpi.Stop(); err != nil {
		return err
	}
	leaveItToRank0(judged)
	return judged
}

// share sends rank 0's verdict to every rank, with its exit status.
func share(g *comm.Group, judged error) (shared, err error) {
	var text string
	if judged != nil {
		text = fmt.Sprintf("%d %v", exitStatus(judged), judged)
	}
	said, err := g.Bcast(0, []byte(text))
	if err != nil || len(said) == 0 {
		return nil, err
	}
	var status int
	number, reason, _ := strings.Cut(string(said), " ")
	if _, err := fmt.Sscan(number, &status); err != nil {
		return nil, err
	}
	return nodeError{errors.New(reason), status}, nil
}
