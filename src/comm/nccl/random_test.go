//go:build cuda && cgo

package nccl

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"dynmo/src/comm"
	"dynmo/src/comm/commtest"
	"dynmo/src/comm/local"
	"dynmo/src/tensor"
)

// seedVariable tells a process which random program to run.
const seedVariable = "DYNMO_NCCL_TEST_SEED"

func init() {
	roles["random"] = func() error {
		seed, err := strconv.Atoi(os.Getenv(seedVariable))
		if err != nil {
			return err
		}
		return local.Run(2+seed%7, func(tr comm.Transport) error {
			return gpus.Run(tr, func(r *commtest.Rank) error { return randomProgram(r, uint64(seed)) })
		})
	}
}

// Random programs of two to eight ranks arrive, in whatever order a rank begins messages and
// waits for them. GPUs have room for three kernels and eight hardware queues. Some libraries
// cannot split communicators or limit CTAs.
func TestRandomPrograms(t *testing.T) {
	seeds := []int{2, 5}
	if os.Getenv("DYNMO_LONG") == "1" {
		seeds = make([]int, 60)
		for i := range seeds {
			seeds[i] = i
		}
	}
	for _, seed := range seeds {
		settings := []string{fmt.Sprintf("%s=%d", seedVariable, seed), "DYNMO_EMULATE_JITTER=1", "DYNMO_EMULATE_QUEUES=8"}
		if seed%4 == 1 {
			settings = append(settings, "DYNMO_EMULATE_NCCL_VERSION=21400")
		} else {
			settings = append(settings, fmt.Sprintf("DYNMO_EMULATE_CTAS=%d", 3*ctas))
		}
		if out, err := limited(t, "random", settings...); err != nil {
			t.Errorf("seed %d: %v: %s", seed, err, out)
		}
	}
}

// randomProgram has worlds that ranks leave, each with chains and rows of some of its ranks,
// in which messages and rounds are under way together.
func randomProgram(r *commtest.Rank, seed uint64) error {
	if err := r.DeviceTransport.Close(); err != nil { // the groups make their own
		return err
	}
	base := comm.New(r.Transport, comm.Options{
		Patience: 3 * time.Minute,
		DeviceTransport: func(t comm.Transport) (comm.DeviceTransport, error) {
			return gpus.Transport(t, r.Device, r.Compute)
		},
	})
	all := commtest.Value(base.Split(0, base.Rank()))
	own := rand.New(rand.NewPCG(seed, uint64(r.Rank())))
	for epoch := uint64(100); all != nil; epoch++ {
		shared := rand.New(rand.NewPCG(seed, epoch)) // alike on all ranks
		chains, leavers := 1+shared.IntN(3), 1+shared.IntN(2)
		chain := commtest.Value(all.SplitAs(comm.Chain, all.Rank()%chains, all.Rank()))
		row := commtest.Value(all.SplitAs(comm.Row, all.Rank()/chains, all.Rank()))
		for range 2 {
			p := program{r: r, own: own, phase: shared.Uint64()}
			p.plan(chain, all, row)
			if err := p.run(); err != nil {
				return err
			}
		}
		var next *comm.Group
		if all.Size() > leavers {
			color := 0
			if all.Rank() >= all.Size()-leavers {
				color = comm.Outside
			}
			next = commtest.Value(all.Split(color, all.Rank()))
		}
		if err := errors.Join(chain.Close(), row.Close(), all.Close()); err != nil {
			return err
		}
		all = next
	}
	return nil
}

// program is what a rank does in a phase of a random program.
type program struct {
	r     *commtest.Rank
	own   *rand.Rand // of this rank alone
	phase uint64     // seeds what all ranks know

	messages []func() // what begins each, in an order of the rank's own
	rounds   []func() // in the order of all
	pending  []pending
	received []arrival
}

// pending is a message or a round under way.
type pending interface {
	Test() (bool, error)
	Wait() error
}

// arrival is what a message is to bring.
type arrival struct {
	mem  tensor.Mem
	want []byte
}

// plan chooses messages between neighbours of a chain, in both directions, and rounds of all
// ranks and of rows.
func (p *program) plan(chain, all, row *comm.Group) {
	known := rand.New(rand.NewPCG(p.phase, 1))
	for rounds := known.IntN(6); len(p.rounds) < rounds; {
		g, seed := []*comm.Group{all, row}[known.IntN(2)], known.Uint64()
		p.rounds = append(p.rounds, func() { p.round(g, seed) })
	}
	size := chain.Size()
	for from := range size {
		for tag := range 6 * (size - 1) {
			to := (from + 1 + tag%2*(size-2)) % size // in turn the next, and the one before
			bytes := int64(known.IntN(5) * known.IntN(9000))
			switch {
			case to == from || known.IntN(3) == 0 || tag >= 8:
			case from == chain.Rank():
				p.messages = append(p.messages, func() {
					p.begun(commtest.Value(chain.Send(to, tag, p.outgoing(from, to, bytes), p.r.Compute.Record(nil))))
				})
			case to == chain.Rank():
				p.messages = append(p.messages, func() {
					p.begun(commtest.Value(chain.Recv(from, tag, p.incoming(from, to, bytes), p.r.Compute.Record(nil))))
				})
			}
		}
	}
	p.own.Shuffle(len(p.messages), func(i, j int) {
		p.messages[i], p.messages[j] = p.messages[j], p.messages[i]
	})
}

// round begins a round of some of the ranks of a group, with up to two parts for each.
func (p *program) round(g *comm.Group, seed uint64) {
	known := rand.New(rand.NewPCG(seed, 2))
	density := 1 + known.IntN(4)
	var sends, recvs []comm.Part
	for k := range 2 * g.Size() * g.Size() {
		from, to := k/2/g.Size(), k/2%g.Size()
		bytes := int64(known.IntN(4) * known.IntN(5000))
		switch {
		case known.IntN(4) >= density || from == to:
		case from == g.Rank():
			sends = append(sends, comm.Part{Rank: to, Mem: p.outgoing(from, to, bytes)})
		case to == g.Rank():
			recvs = append(recvs, comm.Part{Rank: from, Mem: p.incoming(from, to, bytes)})
		}
	}
	p.begun(commtest.Value(g.Exchange(comm.TagReduce, sends, recvs, p.r.Compute.Record(nil))))
}

func (p *program) begun(q pending) { p.pending = append(p.pending, q) }

// outgoing returns memory that the compute stream writes a message to.
func (p *program) outgoing(from, to int, bytes int64) tensor.Mem {
	m := p.memory(bytes)
	if bytes > 0 {
		p.r.Compute.Copy(m, tensor.From(content(from, to, bytes)))
	}
	return m
}

// incoming returns memory for a message.
func (p *program) incoming(from, to int, bytes int64) tensor.Mem {
	m := p.memory(bytes)
	p.received = append(p.received, arrival{m, content(from, to, bytes)})
	return m
}

func (p *program) memory(bytes int64) tensor.Mem {
	return commtest.Value(p.r.Memory(bytes+1)).Span(0, bytes)
}

// content returns bytes that only messages of one length between two ranks have.
func content(from, to int, bytes int64) []byte {
	data := pattern(int(bytes))
	for i := range data {
		data[i] += byte(31*from + 17*to + int(bytes))
	}
	return data
}

// run begins everything, waits for it in another order, and looks at what arrived.
func (p *program) run() error {
	for len(p.messages)+len(p.rounds) > 0 {
		list := &p.messages
		if len(p.messages) == 0 || len(p.rounds) > 0 && p.own.IntN(3) == 0 {
			list = &p.rounds
		}
		(*list)[0]()
		*list = (*list)[1:]
		for range p.own.IntN(3) { // some messages go on before others begin
			if _, err := p.pending[p.own.IntN(len(p.pending))].Test(); err != nil {
				return err
			}
		}
	}
	p.own.Shuffle(len(p.pending), func(i, j int) { p.pending[i], p.pending[j] = p.pending[j], p.pending[i] })
	for _, q := range p.pending {
		if err := q.Wait(); err != nil {
			return err
		}
	}
	for i, a := range p.received {
		if len(a.want) == 0 {
			continue
		}
		if err := holds(p.r.Compute, a.mem, a.want); err != nil {
			return fmt.Errorf("message %d of %d: %w", i, len(p.received), err)
		}
	}
	return nil
}
