package comm

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"dynmo/src/trace"
)

// Board is memory in which every rank shows its state, on its Post. So one rank can report the
// state of all ranks, of dead and stopped ranks too. The processes of one host share it.
type Board struct {
	claimed *Post // its beats are 1 + the rank that tells why the run ends; 0: none does
	posts   []Post
}

// Post is a rank's part of a Board: a cache line, which the rank writes and all
// read. Writing takes nanoseconds, and a nil Post is none.
type Post struct {
	beats    atomic.Uint64 // things begun and waits ended
	state    atomic.Uint64
	where    atomic.Uint64 // step and room
	what     atomic.Uint64 // op, layer and microbatch; 0: none
	peer     atomic.Uint64 // 1 + the rank of the world that is waited for; 0: none
	patience atomic.Int64  // nanoseconds
	_        [16]byte
}

// States of a Post.
const (
	postEmpty = iota
	postRuns
	postParked // takes part no longer, and has not left
	postLeft
)

// Room is a part of a step.
type Room uint8

// Rooms of a step, in order.
const (
	RoomDynamic Room = iota
	RoomPipeline
	RoomUpdate
	RoomValidation
	RoomProfile
	RoomBalance
	RoomMigrate
	RoomRecord
	RoomSave
	roomParked // outside of all steps that follow
)

func (r Room) String() string {
	return [...]string{"dynamic", "pipeline", "update", "validation", "profile", "balance", "migrate", "record", "checkpoint", "parked"}[r]
}

const postBytes = int(unsafe.Sizeof(Post{}))

// NewBoard returns a board for the ranks of one process.
func NewBoard(ranks int) *Board { return newBoard(make([]Post, ranks+1)) }

func newBoard(posts []Post) *Board { return &Board{&posts[0], posts[1:]} }

// ShareBoard returns a board that other processes of this host can open, by this
// process's id and the number.
func ShareBoard(ranks int) (b *Board, number int, err error) {
	file, err := unix.MemfdCreate("dynmo-board", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, 0, fmt.Errorf("board: %w", err)
	}
	if err := unix.Ftruncate(file, int64((ranks+1)*postBytes)); err != nil {
		return nil, 0, fmt.Errorf("board: %w", err)
	}
	b, err = mapBoard(file, ranks)
	return b, file, err
}

// OpenBoard opens the board that another process shares. The system refuses
// processes of other users, and does not show those of other containers.
func OpenBoard(pid, number, ranks int) (*Board, error) {
	file, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", pid, number), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("board: %w", err)
	}
	return mapBoard(file, ranks)
}

// mapBoard maps the memory of a board for as long as the process runs; the file
// stays open, for others to open it too.
func mapBoard(file, ranks int) (*Board, error) {
	memory, err := unix.Mmap(file, 0, (ranks+1)*postBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("board: %w", err)
	}
	return newBoard(unsafe.Slice((*Post)(unsafe.Pointer(&memory[0])), ranks+1)), nil
}

// Post returns the post of a rank of the world.
func (b *Board) Post(rank int) *Post { return &b.posts[rank] }

// Claim reports whether it is this rank that tells why the run ends: the first one
// that claims it.
func (b *Board) Claim(rank int) bool {
	return b.claimed.beats.CompareAndSwap(0, uint64(rank)+1)
}

// Enter says that the rank has begun a room of a step.
func (p *Post) Enter(step int, room Room) {
	if p == nil {
		return
	}
	p.state.Store(postRuns)
	p.where.Store(uint64(step)<<8 | uint64(room))
	p.what.Store(0)
	p.beats.Add(1)
}

// Do says that the rank has begun an op for a microbatch; for a layer, unless that
// is negative.
func (p *Post) Do(op trace.Op, layer, microbatch int) {
	if p == nil {
		return
	}
	p.what.Store(1<<63 | uint64(op)<<56 | uint64(layer+1)&0xffffff<<32 | uint64(microbatch+1)&0xffffffff)
	p.beats.Add(1)
}

// wait says that the rank waits for another one of the world; -1: no longer.
func (p *Post) wait(peer int) {
	if p == nil {
		return
	}
	p.peer.Store(uint64(peer + 1))
	p.beats.Add(1)
}

// SetPatience says how long the ranks of a host may do nothing new.
func (p *Post) SetPatience(d time.Duration) {
	if p != nil {
		p.patience.Store(int64(d))
	}
}

// Park says that the rank takes no part in the run after a step. If it dies the run ends, but
// nobody waits for the rank.
func (p *Post) Park(step int) {
	if p == nil {
		return
	}
	p.Enter(step, roomParked)
	p.state.Store(postParked)
}

// Leave says that the rank is no longer watched: it ends, or tells an error itself.
func (p *Post) Leave() {
	if p != nil {
		p.state.Store(postLeft)
	}
}

// String says what the rank does: "step 3: pipeline: F2 of layer 5, waits for rank 1".
func (p *Post) String() string {
	if p.state.Load() == postEmpty {
		return "its start"
	}
	where, what := p.where.Load(), p.what.Load()
	text := fmt.Sprintf("step %d: %v", where>>8, Room(where&0xff))
	if what != 0 {
		text += fmt.Sprintf(": %v", trace.Op(what>>56&0x7f))
		if microbatch := what & 0xffffffff; microbatch > 0 {
			text += fmt.Sprint(microbatch - 1)
		}
		if layer := what >> 32 & 0xffffff; layer > 0 {
			text += fmt.Sprintf(" of layer %d", layer-1)
		}
	}
	if peer := p.peer.Load(); peer > 0 {
		text += fmt.Sprintf(", waits for rank %d", peer-1)
	}
	return text
}
