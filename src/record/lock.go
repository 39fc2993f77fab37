package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"dynmo/src/input"
)

// LockFile says which process writes into a run directory.
const lockFile = "run.lock"

// holder is a process that writes into a run directory, as its lock file has it.
type holder struct {
	Job     string    `json:"job,omitempty"` // of Slurm; of an array, that of the task
	Restart int       `json:"restart"`       // how often Slurm has requeued the job
	Step    int       `json:"step"`          // of the job
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Since   time.Time `json:"since"`
}

// self returns this process.
func self() holder {
	host, _ := os.Hostname() // "" equals no other host
	number := func(name string) int {
		n, _ := strconv.Atoi(os.Getenv(name)) // 0 where it is not set, as on a first start
		return n
	}
	return holder{
		Job: os.Getenv("SLURM_JOB_ID"), Restart: number("SLURM_RESTART_COUNT"), Step: number("SLURM_STEP_ID"),
		Host: host, PID: os.Getpid(), Since: time.Now().UTC().Truncate(time.Second),
	}
}

// String names the process.
func (h holder) String() string {
	text := fmt.Sprintf("process %d on host %s", h.PID, h.Host)
	if h.Job != "" {
		text = fmt.Sprintf("job %s, %s", h.Job, text)
	}
	return input.Visible(fmt.Sprintf("%s, since %s", text, h.Since.Format(time.RFC3339)))
}

// lock is a run directory that this process alone writes into. Its file names the
// process, for other hosts: flock, which the system gives back when a process ends,
// does not reach them on every shared file system.
type lock struct {
	file *os.File
	path string
}

// lockPatience is how long a lock file may be empty while the process that has made it
// writes its name.
const lockPatience = time.Second

// takeLock takes the lock of a run directory. That of a process that is gone is taken
// over. The error names the process that holds it.
func takeLock(dir string) (*lock, error) {
	path := filepath.Join(dir, lockFile)
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
		made := err == nil
		if errors.Is(err, fs.ErrExist) {
			f, err = os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was given back between the two
		}
		if err != nil {
			return nil, err
		}
		l := &lock{f, path}
		if taken, err := l.take(made, self()); taken || err != nil {
			if err != nil {
				_ = f.Close()
				return nil, err
			}
			return l, nil
		}
		_ = f.Close()
	}
}

// take makes the lock this process's. It reports false if the file was removed
// meanwhile.
func (l *lock) take(made bool, me holder) (bool, error) {
	var other holder
	if !made {
		other = l.holder()
	}
	err := unix.Flock(int(l.file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, fmt.Errorf("%v writes into it", l.holder())
	}
	flocked := err == nil // others: the file system has no such locks
	if there, err := os.Stat(l.path); err != nil || !l.same(there) {
		return false, nil
	}
	if !made && !other.gone(me, flocked) {
		return false, fmt.Errorf("%v writes into it; if that is gone, remove %s", other, l.path)
	}
	text, err := json.Marshal(me)
	if err == nil {
		err = l.file.Truncate(0)
	}
	if err == nil {
		_, err = l.file.WriteAt(append(text, '\n'), 0)
	}
	if err == nil {
		err = l.file.Sync()
	}
	return err == nil, err
}

// holder returns the process that the file names, the zero holder if it names none
// within lockPatience.
func (l *lock) holder() (h holder) {
	for began := time.Now(); time.Since(began) < lockPatience; time.Sleep(lockPatience / 100) {
		text, err := io.ReadAll(io.NewSectionReader(l.file, 0, input.Note))
		if err == nil && json.Unmarshal(text, &h) == nil {
			return h
		}
	}
	return holder{}
}

// gone reports whether a process has surely ended. flocked says that this process could
// lock its file, which tells of processes of the same host alone.
func (h holder) gone(me holder, flocked bool) bool {
	switch {
	case h == holder{}:
		return flocked
	case h.Host == me.Host:
		return flocked || errors.Is(unix.Kill(h.PID, 0), unix.ESRCH)
	case h.Job == "":
		return false
	case h.Job == me.Job: // steps of a job follow each other
		return h.Restart < me.Restart || h.Restart == me.Restart && h.Step < me.Step
	}
	return jobGone(h.Job)
}

// jobGone reports whether Slurm says that a job runs no more. Without Slurm nobody knows.
func jobGone(job string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, "squeue", "--noheader", "--jobs="+job, "--format=%T")
	c.Env = append(os.Environ(), "LC_ALL=C")
	out, err := c.CombinedOutput()
	state := strings.TrimSpace(string(out))
	if err != nil {
		return strings.Contains(state, "Invalid job id")
	}
	return slices.Contains([]string{"", "PENDING", "REQUEUED"}, state)
}

// same reports whether a file is that of the lock.
func (l *lock) same(there fs.FileInfo) bool {
	ours, err := l.file.Stat()
	return err == nil && os.SameFile(there, ours)
}

// release gives the lock back.
func (l *lock) release() error {
	if there, err := os.Lstat(l.path); err != nil || !l.same(there) {
		return l.file.Close() // the run directory was lost
	}
	return errors.Join(os.Remove(l.path), l.file.Close())
}
