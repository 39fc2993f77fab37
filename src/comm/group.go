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
	// Clock is paused while a call of comm runs. A virtual clock is set forward to the arrival
	// time of every message that is received. nil means a wall clock.
	Clock *device.Clock
	// Network is the cost of messages on a virtual clock.
	Network Network
	// Deadline is how long a peer on another host may keep this rank waiting. Whether the process
	// of such a peer runs cannot be seen from here. 0 means 5 s.
	Deadline time.Duration
	// Patience is how long a peer on this host, whose process is seen to run, may keep this rank
	// waiting. If Deadline is longer it counts instead. 0 means 60 s.
	Patience time.Duration
	// Piece is the most bytes that the transport gets at once: longer messages travel in pieces.
	// Every rank has the same value. 0 means 1 GiB, since MPI counts in 32 bits.
	Piece int64
	// DeviceTransport, if not nil, makes the transport of device memory between the ranks of t.
	// Split calls it for every Apart group that is split from a group without device memory.
	// Collective over t.
	DeviceTransport func(t Transport) (DeviceTransport, error)
	// Interrupted, if not nil, reports whether this process was asked to end (SIGTERM). Launchers
	// ask the survivors of a dead rank to end, and kill them soon after. So a wait looks for dead
	// ranks every 10 ms then, to report the dead rank in time.
	Interrupted func() bool

	sent    int64    // bytes of host memory, by this rank
	post    *Post    // of this rank; nil: it shows nothing
	devices []*Group // groups that send device memory: every wait drives their messages
}

const (
	defaultDeadline = 5 * time.Second
	// defaultPatience is longer than a healthy rank may pause (a checkpoint to a slow disk). A peer
	// whose process runs is late, not dead: only a hang is left to find.
	defaultPatience = 60 * time.Second
	// defaultPiece keeps counts far below MPI's 2^31-1.
	defaultPiece = 1 << 30
)

// Group is this rank's side of a set of ranks that exchange messages. Only one goroutine, the
// rank's owner, uses a Group. Callers of its methods use tags below 24576 (see TagForward). A
// method panics if a rank is outside the group or a tag is outside [0, 32767].
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
	rounds  []*round   // that can be used again
	// links is by the receiver's rank in the world. All groups of one New share the links and the
	// options.
	links map[int]link
}

// link is the way from this rank to another.
type link struct {
	busy float64        // until when earlier messages occupy it, seconds of the clock
	sent map[int]uint64 // messages by tag, where they are delayed at random
}

// New returns the group of all ranks of t. This group moves host memory only. Groups that Split
// forms also move device memory if Options.DeviceTransport is set; the table in the package comment
// says how. Every rank gives the same Piece, Network and kind of clock.
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

// Sent returns how many bytes of host memory this rank has sent, in all groups that come from the
// same New.
func (g *Group) Sent() int64 { return g.o.sent }

// Rank returns this rank in the group.
func (g *Group) Rank() int { return g.rank }

// Size returns the number of ranks.
func (g *Group) Size() int { return g.size }

// Peer describes a rank of the group.
func (g *Group) Peer(rank int) Peer { return g.peers[rank] }

// Hosts returns the host name of every rank, by rank.
func (g *Group) Hosts() []string {
	hosts := make([]string, len(g.peers))
	for rank, p := range g.peers {
		hosts[rank] = p.Host
	}
	return hosts
}

// Nodes returns the number of every rank's host, by rank. Hosts are numbered from 0 in the order in
// which ranks show them. It returns nil if all ranks are on one host.
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

// SetDeadline changes Options.Deadline, for this rank, in all groups that come from the same New.
func (g *Group) SetDeadline(d time.Duration) { g.o.Deadline = d }

// SetPatience changes Options.Patience, for this rank, in all groups that come from the same New.
// Post.SetPatience is another limit, for all ranks of a host.
func (g *Group) SetPatience(d time.Duration) { g.o.Patience = d }

// Show makes this rank show on p for which rank it waits, in all groups that come from the same
// New.
func (g *Group) Show(p *Post) { g.o.post = p }

// Post returns the post that Show was given, nil if there is none. A nil Post may be used.
func (g *Group) Post() *Post { return g.o.post }

// Gone returns a *GoneError if the process of a rank no longer runs, else nil. For a rank on
// another host it always returns nil: such processes cannot be seen.
func (g *Group) Gone(rank int) error {
	if p := g.peers[rank]; g.watched[rank] && !alive(p.PID) {
		return gonePeer(p)
	}
	return nil
}

// Alloc returns host memory that transfers may use without copying. Free gives the memory back.
func (g *Group) Alloc(bytes int64) (tensor.Mem, error) { return g.t.Alloc(bytes) }

// Free gives back memory of Alloc.
func (g *Group) Free(m tensor.Mem) { g.t.Free(m) }

// Split forms one group of all ranks that give the same color. Its ranks are ordered by key, then
// by rank. The new groups share the options and the virtual links of g. A rank whose color is
// Outside is in no new group and gets nil. The kind of the new groups is Apart: a new group may stay
// open after g is closed. Collective.
func (g *Group) Split(color, key int) (*Group, error) { return g.SplitAs(Apart, color, key) }

// SplitAs forms groups as Split does, of the given kind. The kind says what a group can do with
// device memory (see the table in the package comment). A Row or a Chain moves device memory only if
// g moves device memory. It is closed before g. Collective.
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

// splitDevice returns the transport of device memory of a group that is split from g, nil if the new
// group has none.
func (g *Group) splitDevice(t Transport, color int, kind Kind) (DeviceTransport, error) {
	switch {
	case g.device != nil:
		return g.device.Split(t, color, kind)
	case g.o.DeviceTransport == nil || t == nil || kind != Apart:
		return nil, nil
	}
	return g.o.DeviceTransport(t)
}

// ready waits until the transport of device memory of g is ready, if there is one. Meanwhile it
// looks for dead ranks in `from`, the group that is split.
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

// HostOnly reports whether g moves host memory only, while Apart groups split from g also move
// device memory.
func (g *Group) HostOnly() bool { return g.device == nil && g.o.DeviceTransport != nil }

// Close waits until all messages of SendBytes are sent, and frees the group's resources. The caller
// has waited for all other requests and rounds of the group. Collective.
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

// Abort ends every rank of the world. Where ranks are processes, they exit with status, and Abort
// does not return.
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
