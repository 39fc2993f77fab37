//go:build cuda && cgo

package nccl

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"dynmo/src/comm"
	"dynmo/src/comm/commtest"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/device/cuda/cudatest"
)

func init() {
	roles["pairs"] = pairs
	roles["one thread"] = oneThread
	for _, c := range commtest.DeviceCases() {
		roles["eight "+c.Name] = func() error {
			return local.Run(8, func(tr comm.Transport) error { return gpus.Run(tr, c.Run) })
		}
	}
}

// limited runs a role on ranks whose GPUs have few CTAs or hardware queues, and returns the
// output. GPUs that hang are reported after a second.
func limited(t *testing.T, role string, settings ...string) (string, error) {
	t.Helper()
	if !cudatest.Emulated(cudatest.New(t)) {
		t.Skip("only emulated GPUs have as little as is asked for")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "DYNMO_EMULATE_DEVICES=8", "DYNMO_EMULATE_HANG=1")
	cmd.Env = append(cmd.Env, settings...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A communicator, a stream and a kernel for each ordered pair of eight ranks hang an H100 of 132
// multiprocessors. NCCL gives each kernel 32 CTAs: seven receives take all of them. With fewer
// hardware queues than streams they hang too: a second receive blocks the sends behind it.
// Without the limits the same messages arrive.
func TestCommunicatorsOfPairsHang(t *testing.T) {
	// From 2.27 on a thread may serve many communicators, as this one does.
	const version = "DYNMO_EMULATE_NCCL_VERSION=22703"
	for _, test := range []struct{ name, ctas, queues, hang string }{
		{"CTAs", "132", "32", "kernels wait for CTAs"},
		{"queues", "448", "3", "streams are blocked in hardware queues"},
		{"neither", "448", "32", ""},
	} {
		out, err := limited(t, "pairs", version, "DYNMO_EMULATE_CTAS="+test.ctas, "DYNMO_EMULATE_QUEUES="+test.queues)
		if test.hang == "" {
			if err != nil {
				t.Errorf("%s: %v: %s", test.name, err, out)
			}
			continue
		}
		for _, want := range []string{"nothing has happened for 1 s: these GPUs hang", test.hang, "hangs on the GPU"} {
			if err == nil || !strings.Contains(out, want) {
				t.Errorf("%s: %v, want an error that says %q: %s", test.name, err, want, out)
			}
		}
	}
}

// The communicators of a world, a chain and its ends take the CTAs of three kernels. They take no
// more hardware queues than a GPU has by default, with any messages and rounds under way.
func TestChainsNeedFewCTAs(t *testing.T) {
	for _, name := range []string{"Storm", "Exchange", "Neighbours"} {
		out, err := limited(t, "eight "+name, fmt.Sprintf("DYNMO_EMULATE_CTAS=%d", 3*ctas), "DYNMO_EMULATE_QUEUES=8")
		if err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// Libraries that cannot split a communicator, or limit its CTAs, do the same.
func TestOldLibrary(t *testing.T) {
	for name, version := range map[string]string{"Storm": "21400", "Leave": "21700"} {
		out, err := limited(t, "eight "+name, "DYNMO_EMULATE_NCCL_VERSION="+version)
		if err != nil {
			t.Errorf("%s with version %s: %v: %s", name, version, err, out)
		}
	}
}

// A thread that makes the calls of two communicators, each only when that communicator is
// ready, destroys their groups up to version 2.26. What owners do works on all versions.
func TestCommunicatorsNeedThreads(t *testing.T) {
	for _, test := range []struct{ version, fails string }{
		{"21805", "is under way"}, {"22203", "thread's state"}, {"22602", "is under way"}, {"22703", ""},
	} {
		version := "DYNMO_EMULATE_NCCL_VERSION=" + test.version
		out, err := limited(t, "one thread", version)
		if (err == nil) != (test.fails == "") || !strings.Contains(out, test.fails) {
			t.Errorf("one thread, version %s: %v, want an error that says %q: %s", test.version, err, test.fails, out)
		}
		for _, name := range []string{"Storm", "Exchange", "Leave"} {
			if out, err := limited(t, "eight "+name, version); err != nil {
				t.Errorf("%s, version %s: %v: %s", name, test.version, err, out)
			}
		}
	}
}

// oneThread sends a message by each of two communicators of two ranks, all calls of a rank
// on one thread.
func oneThread() error {
	commtest.Value(Version())
	ids := [2]identity{commtest.Value(newIdentity()), commtest.Value(newIdentity())}
	return local.Run(2, func(tr comm.Transport) error {
		return gpus.Run(tr, func(r *commtest.Rank) error {
			p := pairwise{r: r}
			m := commtest.Value(r.Memory(4096))
			for i, id := range ids {
				p.open(id, r.Rank())
				commtest.Must(p.comms[i].await(time.Now().Add(10 * time.Second)))
			}
			for i, c := range p.comms {
				handle := p.streams[i].(handled).Handle()
				if r.Rank() == 0 {
					commtest.Must(c.send(m, 1, handle))
				} else {
					commtest.Must(c.recv(m, 0, handle))
				}
			}
			var ends []device.Event
			for i, c := range p.comms {
				commtest.Must(c.await(time.Now().Add(10 * time.Second)))
				ends = append(ends, p.streams[i].Record(nil))
			}
			commtest.Must(p.arrive(ends))
			return p.close()
		})
	})
}

// pairs sends two messages from every rank to every other, all receives first. Each ordered pair
// has a communicator and a stream of its own.
func pairs() error {
	const ranks = 8
	commtest.Value(Version())
	var ids [ranks][ranks]identity
	for from := range ids {
		for to := range ids {
			ids[from][to] = commtest.Value(newIdentity())
		}
	}
	return local.Run(ranks, func(tr comm.Transport) error {
		return gpus.Run(tr, func(r *commtest.Rank) error {
			p := pairwise{r: r}
			for other := range ranks {
				if other != r.Rank() {
					p.open(ids[other][r.Rank()], 1)
					p.open(ids[r.Rank()][other], 0)
				}
			}
			for i := range p.comms {
				commtest.Must(p.comms[i].await(time.Now().Add(10 * time.Second)))
			}
			return errors.Join(p.exchange(), p.close())
		})
	})
}

// pairwise is the communicators of one rank, in turn one to receive by and one to send by.
type pairwise struct {
	r       *commtest.Rank
	comms   []communicator
	streams []device.Stream
}

func (p *pairwise) open(id identity, rank int) {
	p.comms = append(p.comms, commtest.Value(begin(id, rank, 2, 32)))
	p.streams = append(p.streams, p.r.Device.NewStream())
}

// exchange issues all receives and then all sends, and waits for the streams.
func (p *pairwise) exchange() error {
	const bytes = 4096
	m := commtest.Value(p.r.Memory(bytes))
	deadline := time.Now().Add(3 * time.Minute)
	var ends []device.Event
	for _, sends := range []bool{false, true} {
		for i, c := range p.comms {
			if (i%2 == 1) != sends {
				continue
			}
			for range 2 {
				handle := p.streams[i].(handled).Handle()
				if sends {
					commtest.Must(c.send(m, 1, handle))
				} else {
					commtest.Must(c.recv(m, 0, handle))
				}
				commtest.Must(p.comms[i].await(deadline))
			}
			ends = append(ends, p.streams[i].Record(nil))
		}
	}
	return p.arrive(ends)
}

// arrive waits until the last message of each communicator has happened.
func (p *pairwise) arrive(ends []device.Event) error {
	for i, end := range ends {
		for done := false; !done; time.Sleep(poll) {
			if _, err := p.comms[i].ready(); err != nil {
				return err
			}
			done = commtest.Value(end.Done())
		}
	}
	return nil
}

func (p *pairwise) close() (err error) {
	for i := range p.comms {
		err = errors.Join(err, p.comms[i].abort())
		p.streams[i].Close()
	}
	return errors.Join(err, p.r.DeviceTransport.Close())
}
