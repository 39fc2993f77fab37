package comm

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"dynmo/src/trace"
)

// Board is memory in which every rank of a host shows its state, on its Post. So one rank can report
// the state of all ranks, of dead and stopped ranks too. The processes of one host share a Board.
type Board struct {
	claimed *Post // its beats are 1 + the rank that reports why the run ends; 0: no rank has claimed
	posts   []Post
}

// Post is a rank's part of a Board, one cache line. The rank writes its Post; every rank may read it.
// Writing takes nanoseconds. Methods that write do nothing on a nil Post.
type Post struct {
	beats    atomic.Uint64 // number of rooms and ops begun, and of waits begun or ended
	state    atomic.Uint64
	where    atomic.Uint64 // step and room
	what     atomic.Uint64 // op, layer and microbatch; 0: no op
	peer     atomic.Uint64 // 1 + the rank of the world for which this rank waits; 0: it does not wait
	patience atomic.Int64  // nanoseconds
	_        [16]byte
}

// States of a Post.
const (
	postEmpty = iota
	postRuns
	postParked // takes part in no more steps, and its process has not left
	postLeft
)

// Room is one of the parts into which a training step is divided.
type Room uint8

// Rooms of a step, in order.
const (
	RoomDynamic    Room = iota // the model changes (pruning, freezing and other kinds of dynamism)
	RoomPipeline               // forward and backward passes of all microbatches; sums over replicas
	RoomUpdate                 // agreement on loss and norm, then the optimizer
	RoomValidation             // in some steps, the loss of validation data
	RoomProfile                // costs of the step are collected on one rank
	RoomBalance                // this rank decides in which layout the next step runs
	RoomMigrate                // layers move to their next stages
	RoomRecord                 // rank 0 writes logs
	RoomSave                   // a checkpoint is written
	roomParked                 // a rank without layers waits for orders
)

func (r Room) String() string {
	return [...]string{"dynamic", "pipeline", "update", "validation", "profile", "balance", "migrate", "record", "checkpoint", "parked"}[r]
}

const postBytes = int(unsafe.Sizeof(Post{}))

// NewBoard returns a board for the ranks of this process only.
func NewBoard(ranks int) *Board { return newBoard(make([]Post, ranks+1)) }

func newBoard(posts []Post) *Board { return &Board{&posts[0], posts[1:]} }

// ShareBoard returns a board that other processes of this host can open. OpenBoard needs this
// process's id and the number. ranks is the size of the world.
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

// OpenBoard opens the board that the process pid has made by ShareBoard. It returns the system's
// error if the process belongs to another user or to another container. Then the caller can use a
// board of its own.
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

// Claim decides which rank of the board reports why the run ends. It returns true to the first rank
// that calls it, and false to every later rank.
func (b *Board) Claim(rank int) bool {
	return b.claimed.beats.CompareAndSwap(0, uint64(rank)+1)
}

// Enter shows that the rank has begun a room of a step.
func (p *Post) Enter(step int, room Room) {
	if p == nil {
		return
	}
	p.state.Store(postRuns)
	p.where.Store(uint64(step)<<8 | uint64(room))
	p.what.Store(0)
	p.beats.Add(1)
}

// Do shows that the rank has begun an op of a layer for a microbatch. A negative layer or microbatch
// means that the op has none.
func (p *Post) Do(op trace.Op, layer, microbatch int) {
	if p == nil {
		return
	}
	p.what.Store(1<<63 | uint64(op)<<56 | uint64(layer+1)&0xffffff<<32 | uint64(microbatch+1)&0xffffffff)
	p.beats.Add(1)
}

// wait shows that the rank waits for peer, a rank of the world; -1: it no longer waits.
func (p *Post) wait(peer int) {
	if p == nil {
		return
	}
	p.peer.Store(uint64(peer + 1))
	p.beats.Add(1)
}

// SetPatience sets how long all ranks of this host together may show nothing new before Watch.Look
// takes the run for stuck. If ranks of a host set different times, the longest counts.
func (p *Post) SetPatience(d time.Duration) {
	if p != nil {
		p.patience.Store(int64(d))
	}
}

// Park shows that the rank takes part in no step after the given one. Watch.Look no longer expects
// progress of the rank. But a parked rank that ends without Leave has failed, as any other rank.
func (p *Post) Park(step int) {
	if p == nil {
		return
	}
	p.Enter(step, roomParked)
	p.state.Store(postParked)
}

// Leave ends the watching of the rank. The rank calls Leave before it ends without an error, or
// before it reports an error itself.
func (p *Post) Leave() {
	if p != nil {
		p.state.Store(postLeft)
	}
}

// String describes what the rank does: "step 3: pipeline: F2 of layer 5, waits for rank 1".
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
