package nodebench

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"dynmo/src/checkpoint"
	"dynmo/src/device"
	"dynmo/src/files"
	"dynmo/src/kernel"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// Values to reach by a checkpoint. It blocks training for at most 1.5 times the time of a copy. It
// is written at 0.8 of the rate of the disk or of hashing, whichever is slower. It is read within
// readSlack seconds more than its files.
const (
	copyReach  = 0.667
	writeReach = 0.8
	readSlack  = 2.0
)

// Save measures checkpoints of a model below a directory, written by `ranks` ranks in this process:
//
//	checkpoint/copy_ratio   seconds of copying as many bytes / seconds in which training waits
//	checkpoint/write_ratio  seconds of the slower of writing as many bytes to one file on
//	                        disk, and hashing them on all ranks / seconds of writing
//	checkpoint/read_ratio   (seconds of reading the files + 2) / seconds of reading the layers
//
// Layers that come back with another hash are wrong. If the system has the files in memory, they
// are read from memory.
func Save(k kernel.Backend, dev device.Device, c model.Config, dir string, ranks int, rounds Rounds) ([]Result, error) {
	s, err := model.NewStage(c, c.All(), dev, k.DType())
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	defer s.Free()
	draw := random.Keyed(1)
	for _, l := range s.Layers {
		for _, p := range l.Params() {
			for _, m := range []tensor.Mem{p.M, p.V} { // unwritten memory takes no time to read
				for i := range tensor.Of[float32](m) {
					tensor.Of[float32](m)[i] = draw.Float32()
				}
			}
		}
	}
	dir, remove, err := files.Scratch(dir, "dynmo-bench")
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	defer remove()
	b := &saveBench{bench: newBench(k, dev), dir: dir, shape: c, layers: s.Layers, shots: make([]checkpoint.Snapshot, ranks)}
	defer b.free()
	b.take() // the first copy allocates memory
	for i := range b.shots {
		b.bytes += b.shots[i].Bytes()
	}
	b.from, b.to = make([]byte, b.bytes), make([]byte, b.bytes)
	for at := range b.bytes / 8 {
		binary.LittleEndian.PutUint64(b.from[8*at:], draw.Uint64())
	}
	copy(b.to, b.from)
	waits := b.rounds(rounds.of(0, 3), func() { copy(b.to, b.from) }, b.take)
	writes := b.rounds(rounds.of(1, 3), b.disk, b.hash, b.write)
	reads := b.rounds(rounds.of(2, 3), b.read, b.load)
	if b.err != nil {
		return nil, fmt.Errorf("checkpoint: %w", b.err)
	}
	size, wrong := float64(b.bytes)/1e9, b.compare()
	b.add("checkpoint/bytes", single(size), "GB", 0, 0)
	b.add("checkpoint/copy_rate", waits.rate(1, size), "GB/s", 0, 0)
	b.add("checkpoint/copy_ratio", waits.ratio(0, 1, 1), "ratio", copyReach, wrong)
	b.add("checkpoint/disk_rate", writes.rate(0, size), "GB/s", 0, 0)
	b.add("checkpoint/hash_rate", writes.rate(1, size), "GB/s", 0, 0)
	b.add("checkpoint/write_rate", writes.rate(2, size), "GB/s", 0, wrong)
	slower := 0
	if writes.rate(1, size).median < writes.rate(0, size).median {
		slower = 1
	}
	b.add("checkpoint/write_ratio", writes.ratio(slower, 2, 1), "ratio", writeReach, wrong)
	b.add("checkpoint/read_rate", reads.rate(1, size), "GB/s", 0, wrong)
	b.add("checkpoint/read_ratio", single((size/reads.rate(0, size).median+readSlack)/(size/reads.rate(1, size).median)), "ratio", 1, wrong)
	return b.results, b.err
}

// saveBench is the state of a benchmark of checkpoints.
type saveBench struct {
	*bench
	dir      string
	shape    model.Config
	layers   []*model.Layer
	shots    []checkpoint.Snapshot // by rank
	bytes    int64
	from, to []byte
	step     int // of the last checkpoint
}

// each calls do for every rank, at the same time.
func (b *saveBench) each(do func(rank int) error) {
	errs := make([]error, len(b.shots))
	var all sync.WaitGroup
	for rank := range b.shots {
		all.Go(func() { errs[rank] = do(rank) })
	}
	all.Wait()
	b.err = cmp.Or(b.err, errors.Join(errs...))
}

// of returns the layers that a rank saves.
func (b *saveBench) of(rank int) []*model.Layer {
	n, ranks := len(b.layers), len(b.shots)
	return b.layers[rank*n/ranks : (rank+1)*n/ranks]
}

// take copies the layers, one rank after the other. In a run each rank has a core of its own, but
// not here.
func (b *saveBench) take() {
	for rank := range b.shots {
		b.err = cmp.Or(b.err, b.shots[rank].Take(b.of(rank), checkpoint.Share{Of: 1}, b.stream))
	}
}

// write writes a checkpoint.
func (b *saveBench) write() {
	b.step++
	var mutex sync.Mutex
	files := make(map[string]checkpoint.File)
	b.each(func(rank int) error {
		mine, err := b.shots[rank].Write(b.dir, b.step, nil)
		mutex.Lock()
		defer mutex.Unlock()
		maps.Copy(files, mine)
		return err
	})
	order, err := schedule.New(schedule.Kind1F1B, 1, 1, 1)
	b.err = cmp.Or(b.err, err, checkpoint.Commit(b.dir, checkpoint.Manifest{
		Step: b.step, DType: b.k.DType().String(), Layers: len(b.layers), Files: files,
		Layout: layout.New(partition.Partition{0, len(b.layers)}, order, 1, layout.StageMajor),
	}, nil))
}

// disk writes as many bytes as a checkpoint to one file.
func (b *saveBench) disk() {
	path := filepath.Join(b.dir, "plain")
	f, err := os.Create(path)
	if err == nil {
		for at := int64(0); at < b.bytes && err == nil; at += 1 << 20 {
			_, err = f.Write(b.from[at:min(at+1<<20, b.bytes)])
		}
		err = cmp.Or(err, f.Sync(), f.Close(), os.Remove(path))
	}
	b.err = cmp.Or(b.err, err)
}

// hash hashes as many bytes as a checkpoint has, on all ranks.
func (b *saveBench) hash() {
	b.each(func(rank int) error {
		n, ranks := b.bytes, int64(len(b.shots))
		sha256.Sum256(b.from[int64(rank)*n/ranks : int64(rank+1)*n/ranks])
		return nil
	})
}

// read reads the files of the checkpoint.
func (b *saveBench) read() {
	entries, err := os.ReadDir(filepath.Join(b.dir, checkpoint.Name(b.step)))
	b.err = cmp.Or(b.err, err)
	b.each(func(rank int) error {
		n, ranks := len(entries), len(b.shots)
		into := b.to[int64(rank)*b.bytes/int64(ranks) : int64(rank+1)*b.bytes/int64(ranks)]
		for _, e := range entries[rank*n/ranks : (rank+1)*n/ranks] {
			f, err := os.Open(filepath.Join(b.dir, checkpoint.Name(b.step), e.Name()))
			for err == nil {
				_, err = f.Read(into)
			}
			if err != io.EOF {
				return err
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// load reads the layers of the checkpoint.
func (b *saveBench) load() {
	b.loaded(func(*model.Layer, *model.Layer) error { return nil })
}

// compare counts the layers that come back with another hash.
func (b *saveBench) compare() (wrong int) {
	var mutex sync.Mutex
	b.loaded(func(got, want *model.Layer) error {
		first, err := want.Hash()
		if err != nil {
			return err
		}
		second, err := got.Hash()
		mutex.Lock()
		defer mutex.Unlock()
		if first != second {
			wrong++
		}
		return err
	})
	return wrong
}

// loaded reads the layers of the checkpoint, and calls visit with each and the layer that was
// saved.
func (b *saveBench) loaded(visit func(got, want *model.Layer) error) {
	b.each(func(rank int) error {
		c, err := checkpoint.Open(filepath.Join(b.dir, checkpoint.Name(b.step)))
		if err != nil {
			return err
		}
		for _, want := range b.of(rank) {
			got, err := c.Layer(want.ID, b.shape, b.dev, b.k.DType())
			if err != nil {
				return err
			}
			err = visit(got, want)
			got.Free()
			if err != nil {
				return err
			}
		}
		return nil
	})
}
