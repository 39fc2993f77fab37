package comm

import (
	"fmt"
	"slices"
	"time"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Options are the settings of a Group and of every group split from it.
type Options struct {
	// Clock is paused while communicating; a virtual one reaches the arrival
	// time of every message received. nil means a wall clock.
	Clock *device.Clock
	// Network is the cost of messages on a virtual clock.
	Network Network
	// Deadline is how long a peer that cannot be seen (on another host) may
	// keep this rank waiting; 0 means 5 s, the floor that law 8 sets.
	Deadline time.Duration
	// Patience is how long a peer on this host that is seen alive may keep this
	// rank waiting, where it is longer than Deadline; 0 means 60 s.
	Patience time.Duration
	// Piece is the longest message handed to the transport, in bytes, the same
	// on every rank; 0 means 1 GiB, since MPI counts in 32 bits.
	Piece int64
	// DeviceTransport, if not nil, makes the transport of device memory between the
	// ranks of t. It is called for the groups that Split forms of one that has none.
	// Collective.
	DeviceTransport func(t Transport) (DeviceTransport, error)
	// Interrupted, if not nil, reports whether this process was asked to end
	// (SIGTERM). Launchers kill the survivors of a dead rank soon after asking,
	// so waits then look for the dead at once.
	Interrupted func() bool

	sent    int64    // bytes of host memory, by this rank
	post    *Post    // of this rank; nil: it shows nothing
	devices []*Group // those that send device memory: every wait drives their messages
}

const (
	defaultDeadline = 5 * time.Second
	// defaultPatience is longer than any pause of a healthy rank that should
	// count as a fault (a checkpoint to a slow disk, a stopped debugger): a peer
	// that is seen alive is late, not dead, and only hangs are left to find.
	defaultPatience = 60 * time.Second
	// defaultPiece keeps counts far below MPI's 2^31-1.
	defaultPiece = 1 << 30
)

// Group is this rank's side of a set of ranks that exchange messages. One
// goroutine, the rank's owner, uses it. Tags that rooms use lie in
// [0, TagCollective).
type Group struct {
	t       Transport
	device  DeviceTransport // nil: only host memory can be sent
	o       *Options        // shared with the groups split from this one
	rank    int
	size    int
	peers   []Peer
	watched []bool     // by rank: on this host, and seen alive at the start
	staging staging    // memory for messages of bytes
	pending []pending  // messages of bytes not yet received, oldest first
	idle    []*message // that can be used again
	rounds  []*round   // likewise
	// links is by the receiver's rank in the world. All groups share the links, as
	// they share the options.
	links map[int]link
}

// link is the way from this rank to another.
type link struct {
	busy float64        // until when earlier messages occupy it, seconds of the clock
	sent map[int]uint64 // messages by tag, where they are delayed at random
}

// New returns the group of all ranks of t. It sends host memory only; the groups
// that Split forms also send device memory, if Options say how. Every rank gives
// the same Piece, Network and kind of clock.
func New(t Transport, o Options) *Group {
	if o.Clock == nil {
		o.Clock = device.NewWall()
	}
	if o.Deadline == 0 {
		o.Deadline = defaultDeadline
	}
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	if o.Piece == 0 {
		o.Piece = defaultPiece
	}
	t.Stamp(o.Clock.Kind() == "virtual")
	return newGroup(t, &o, make(map[int]link))
}

func newGroup(t Transport, o *Options, links map[int]link) *Group {
	g := &Group{t: t, o: o, rank: t.Rank(), size: t.Size(), staging: staging{t: t}, links: links}
	g.peers = make([]Peer, g.size)
	for rank := range g.peers {
		g.peers[rank] = t.Peer(rank)
	}
	g.watched = visible(g.peers, g.peers[g.rank].Host)
	return g
}

// Sent returns the bytes of host memory that this rank has sent, in all groups that come from
// the same New.
func (g *Group) Sent() int64 { return g.o.sent }

// Rank returns this rank in the group.
func (g *Group) Rank() int { return g.rank }

// Size returns the number of ranks.
func (g *Group) Size() int { return g.size }

// Peer describes a rank of the group.
func (g *Group) Peer(rank int) Peer { return g.peers[rank] }

// Hosts returns the host of every rank.
func (g *Group) Hosts() []string {
	hosts := make([]string, len(g.peers))
	for rank, p := range g.peers {
		hosts[rank] = p.Host
	}
	return hosts
}

// Nodes returns the host of every rank as a number, counted from 0; nil if all are on one.
func (g *Group) Nodes() []int {
	list, known := make([]int, len(g.peers)), make(map[string]int)
	for rank, p := range g.peers {
		if _, ok := known[p.Host]; !ok {
			known[p.Host] = len(known)
		}
		list[rank] = known[p.Host]
	}
	if len(known) == 1 {
		return nil
	}
	return list
}

// SetDeadline changes how long a peer on another host may keep this rank
// waiting, here and in all groups that come from the same New.
func (g *Group) SetDeadline(d time.Duration) { g.o.Deadline = d }

// SetPatience changes how long a peer on this host that is seen alive may keep this
// rank waiting, likewise.
func (g *Group) SetPatience(d time.Duration) { g.o.Patience = d }

// Show makes this rank show on a post for which message it waits, likewise.
func (g *Group) Show(p *Post) { g.o.post = p }

// Post returns the post of this rank, nil if there is none.
func (g *Group) Post() *Post { return g.o.post }

// Gone returns a *GoneError if a rank runs no longer, as far as can be seen: of those on
// other hosts it cannot.
func (g *Group) Gone(rank int) error {
	if p := g.peers[rank]; g.watched[rank] && !alive(p.PID) {
		return gonePeer(p)
	}
	return nil
}

// Alloc gives host memory that transfers may use without copying. Free returns it.
func (g *Group) Alloc(bytes int64) (tensor.Mem, error) { return g.t.Alloc(bytes) }

// Free returns memory that Alloc gave.
func (g *Group) Free(m tensor.Mem) { g.t.Free(m) }

// Split forms groups of the ranks with equal color, ordered by key, then by
// rank. The groups share the options and the links of g. A rank whose color is
// Outside is in none of them and gets nil. Each is Apart: it may outlive g. Collective.
func (g *Group) Split(color, key int) (*Group, error) { return g.SplitAs(Apart, color, key) }

// SplitAs forms groups of a kind as Split does. A Row or a Chain carries device memory only if g
// does. Messages of device memory travel in a Chain only, between neighbours (see
// DeviceTransport.Send). Collective.
func (g *Group) SplitAs(kind Kind, color, key int) (*Group, error) {
	g.o.Clock.Pause()
	defer g.o.Clock.Resume()
	// A transport may split without a deadline; the barrier has one.
	if err := g.Barrier(); err != nil {
		return nil, fmt.Errorf("split: %w", err)
	}
	t, err := g.t.Split(color, key)
	if err != nil {
		return nil, fmt.Errorf("split: %w", err)
	}
	d, err := g.splitDevice(t, color, kind)
	if err != nil {
		return nil, fmt.Errorf("split: %w", err)
	}
	var part *Group
	if t != nil {
		part = newGroup(t, g.o, g.links)
		if part.device = d; d != nil {
			g.o.devices = append(g.o.devices, part)
		}
	}
	for _, each := range []*Group{g, part} { // the part may need all ranks of g
		if err := each.ready(g); err != nil {
			return nil, fmt.Errorf("split: %w", err)
		}
	}
	return part, nil
}

// splitDevice returns the transport of device memory of a part of g, nil if it has none.
func (g *Group) splitDevice(t Transport, color int, kind Kind) (DeviceTransport, error) {
	switch {
	case g.device != nil:
		return g.device.Split(t, color, kind)
	case g.o.DeviceTransport == nil || t == nil || kind != Apart:
		return nil, nil
	}
	return g.o.DeviceTransport(t)
}

// ready waits until the transport of device memory has all it needs, if there is one. It
// looks for the dead in the group that it was split from.
func (g *Group) ready(from *Group) error {
	if g == nil || g.device == nil {
		return nil
	}
	limit := readyFor + time.Duration(g.size)*readyPerRank
	return poll(g.device.Ready, []*Group{from}, limit)
}

const (
	// readyFor is the longest time in which the ranks of a group make their transport of device
	// memory, which opens devices and networks. Each rank adds readyPerRank.
	readyFor     = 60 * time.Second
	readyPerRank = 50 * time.Millisecond
)

// HostOnly reports whether groups that are split off g send device memory, but g does not.
func (g *Group) HostOnly() bool { return g.device == nil && g.o.DeviceTransport != nil }

// Close waits until the messages of bytes sent are received and frees the
// group's resources. Collective.
func (g *Group) Close() error {
	g.o.Clock.Pause()
	defer g.o.Clock.Resume()
	if err := g.flush(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	g.staging.free()
	if g.device != nil {
		g.o.devices = slices.DeleteFunc(g.o.devices, func(other *Group) bool { return other == g })
		if err := g.device.Close(); err != nil {
			return fmt.Errorf("close: %w", err)
		}
	}
	return g.t.Close()
}

// Abort ends every rank of the world with this exit status. Where ranks are
// processes it does not return.
func (g *Group) Abort(status int) { g.t.Abort(status) }

// check panics where a rank or a tag is out of range.
func (g *Group) check(rank, tag int) {
	if rank < 0 || rank >= g.size {
		panic("comm: rank outside the group")
	}
	if tag < 0 || tag > 32767 {
		panic("comm: tag outside [0, 32767]")
	}
}
