//go:build cgo

package nccl

import "dynmo/src/comm"

// opening makes the communicator of a domain by an identity, which rank 0 sends to the
// others. It takes a domain of several ranks.
type opening struct {
	k     *control
	d     *domain
	ctas  int
	rank  int
	ranks []int // of the control messages' transport, by rank of the domain
	inbox inbox
}

// openByIdentity begins to open a domain of some ranks of a control's transport.
func openByIdentity(k *control, d *domain, rank, ctas int, ranks []int) (*opening, error) {
	o := &opening{k: k, d: d, ctas: ctas, rank: rank, ranks: ranks, inbox: inbox{k: k, from: ranks[0], tag: tagIdentity}}
	if rank > 0 {
		return o, nil
	}
	id, err := newIdentity()
	if err != nil {
		return o, err
	}
	for _, to := range ranks[1:] {
		if err := k.send(to, tagIdentity, id[:]); err != nil {
			return o, err
		}
	}
	d.begin(id, 0, len(ranks), ctas)
	return o, nil
}

// drive begins the communicator once the identity has come.
func (o *opening) drive() error {
	if o.d.owner != nil {
		return nil
	}
	data, err := o.inbox.next(blockBytes)
	if err != nil || data == nil {
		return err
	}
	o.d.begin(identity(data), o.rank, len(o.ranks), o.ctas)
	o.inbox.close()
	return nil
}

// splitting is the job of a communicator that splits another one off.
type splitting struct {
	color, key, ctas int
	part             communicator
	into             *domain // nil: this rank is in none
}

func (s *splitting) issue(_ *domain, k *communicator) (_ communicator, err error) {
	color := s.color
	if s.into == nil {
		color = comm.Outside
	}
	s.part, err = k.split(color, s.key, s.ctas)
	return s.part, err
}

// settle hands the part over to an owner of its own.
func (s *splitting) settle(*domain) {
	if s.into != nil {
		s.into.owner = newOwner(s.into.device, s.part)
	}
}

func (s *splitting) agreed() (bool, error) { return true, nil }
