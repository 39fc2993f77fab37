package launch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"dynmo/src/checkpoint"
	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/files"
)

// slowestRead is the slowest rate, in bytes per second, at which reading a file does not count as
// stuck.
const slowestRead = 10e6

// fileID tells files of one host apart. The zero fileID is that of a file that cannot be read: the
// rank that reads it later reports why.
type fileID struct {
	Device, Inode uint64
	Bytes, Time   int64
}

// fileHashes returns the SHA-256 of every file that the settings name and the ranks read, by
// setting. resume is Hooks.Resume. Ranks of one host that share a file read it once. Nobody reads it
// if all ranks share it. Collective.
func fileHashes(c config.Config, world *comm.Group, resume string) (map[string]string, error) {
	files, has := c.Files(), []byte("no")
	if resume != "" && checkpoint.Has(resume) {
		has = []byte("yes")
	}
	has, err := world.Bcast(0, has) // hosts may see different directories
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	if string(has) == "yes" {
		delete(files, "model.weights") // the weights are the checkpoint's
	}
	hashes := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		hash, err := fileHash(files[name], world)
		if err != nil {
			return nil, fmt.Errorf("start: %s: %w", name, err)
		}
		if hash != "" {
			hashes[name] = hash
		}
	}
	return hashes, nil
}

// fileHash returns the hash of a file; "" if there is no other file in the world, or if this rank
// cannot read it. Collective.
func fileHash(path string, world *comm.Group) (string, error) {
	f, id := identify(path)
	if f != nil {
		defer f.Close()
	}
	all, err := exchange(world, id)
	if err != nil {
		return "", err
	}
	me := world.Rank()
	first := make([]int, len(all)) // by rank: the first rank of its host with the same file
	most := int64(0)
	for rank, id := range all {
		for first[rank] = 0; all[first[rank]] != id || world.Peer(first[rank]).Host != world.Peer(rank).Host; {
			first[rank]++
		}
		most = max(most, id.Bytes)
	}
	if slices.Max(first) == 0 {
		return "", nil
	}
	var hash string
	if first[me] == me && f != nil {
		sum := sha256.New()
		if _, err := io.Copy(sum, f); err == nil { // else the rank reports the error when it reads the file
			hash = hex.EncodeToString(sum.Sum(nil))
		}
	}
	limit := startFor + time.Duration(float64(most)/slowestRead*float64(time.Second))
	world.SetDeadline(limit)
	world.SetPatience(limit)
	hashes, err := exchange(world, hash)
	world.SetDeadline(startFor)
	world.SetPatience(startFor)
	if err != nil {
		return "", err
	}
	return hashes[first[me]], nil
}

// identify opens a file and returns its id. The file is nil if it cannot be opened.
func identify(path string) (*os.File, fileID) {
	f, bytes, err := files.Regular(path, files.Unbound)
	if err != nil {
		return nil, fileID{}
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fileID{}
	}
	s := info.Sys().(*syscall.Stat_t)
	return f, fileID{s.Dev, s.Ino, bytes, info.ModTime().UnixNano()}
}

// exchange returns the values of all ranks, by rank. Collective.
func exchange[T any](world *comm.Group, mine T) ([]T, error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	rows, err := world.Allgather(text)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(rows))
	for rank, b := range rows {
		if err := json.Unmarshal(b, &all[rank]); err != nil {
			return nil, fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	return all, nil
}
