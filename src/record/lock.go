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

	"dynmo/src/files"
)

// lockFile names the process that writes into a run directory.
const lockFile = "run.lock"

// holder is a process that writes into a run directory, in the form of the lock file.
type holder struct {
	Job     string    `json:"job,omitempty"` // Slurm job; for an array job, the job of the task
	Restart int       `json:"restart"`       // how often Slurm has requeued the job
	Step    int       `json:"step"`          // job step
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Since   time.Time `json:"since"`
}

// self returns the holder for this process.
func self() holder {
	host, _ := os.Hostname() // "" differs from every other host
	number := func(name string) int {
		n, _ := strconv.Atoi(os.Getenv(name)) // 0 if not set, as on a first start
		return n
	}
	return holder{
		Job: os.Getenv("SLURM_JOB_ID"), Restart: number("SLURM_RESTART_COUNT"), Step: number("SLURM_STEP_ID"),
		Host: host, PID: os.Getpid(), Since: time.Now().UTC().Truncate(time.Second),
	}
}

// String returns the process and host, and the job if there is one.
func (h holder) String() string {
	text := fmt.Sprintf("process %d on host %s", h.PID, h.Host)
	if h.Job != "" {
		text = fmt.Sprintf("job %s, %s", h.Job, text)
	}
	return files.Visible(fmt.Sprintf("%s, since %s", text, h.Since.Format(time.RFC3339)))
}

// lock is the exclusive right of this process to write into a run directory. The file names the
// process for other hosts. The system releases flock when a process ends, but flock does not work
// across hosts on every shared file system.
type lock struct {
	file *os.File
	path string
}

// lockPatience is how long a lock file may be empty: the process that made the file may still be
// writing its name.
const lockPatience = time.Second

// takeLock takes the lock of a run directory. If the process that has the lock has ended, the lock
// is taken over. Else the error names that process.
func takeLock(dir string) (*lock, error) {
	path := filepath.Join(dir, lockFile)
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
		made := err == nil
		if errors.Is(err, fs.ErrExist) {
			f, err = os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // the lock was released between the two calls
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

// take writes this process into the lock file. It returns false if the file was removed in the
// meantime.
func (l *lock) take(made bool, me holder) (bool, error) {
	var other holder
	if !made {
		other = l.holder()
	}
	err := unix.Flock(int(l.file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, fmt.Errorf("%v writes into it: wait for its end or stop it, or take another directory", l.holder())
	}
	flocked := err == nil // other errors: the file system does not support flock
	if there, err := os.Stat(l.path); err != nil || !l.same(there) {
		return false, nil
	}
	if !made && !other.gone(me, flocked) {
		return false, fmt.Errorf("%v writes into it: wait for its end or stop it; if it is gone, remove %s", other, l.path)
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

// holder returns the process that the file names. It returns the zero holder if the file names none
// within lockPatience.
func (l *lock) holder() (h holder) {
	for began := time.Now(); time.Since(began) < lockPatience; time.Sleep(lockPatience / 100) {
		text, err := io.ReadAll(io.NewSectionReader(l.file, 0, files.Note))
		if err == nil && json.Unmarshal(text, &h) == nil {
			return h
		}
	}
	return holder{}
}

// gone reports whether a process has surely ended. flocked says that this process could lock the
// other's file. That proves something only for processes of the same host.
func (h holder) gone(me holder, flocked bool) bool {
	switch {
	case h == holder{}:
		return flocked
	case h.Host == me.Host:
		return flocked || errors.Is(unix.Kill(h.PID, 0), unix.ESRCH)
	case h.Job == "":
		return false
	case h.Job == me.Job: // the steps of a job run one after the other
		return h.Restart < me.Restart || h.Restart == me.Restart && h.Step < me.Step
	}
	return jobGone(h.Job)
}

// jobGone reports whether Slurm says that a job no longer runs. Without Slurm the answer is false.
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

// same reports whether a file is the open lock file.
func (l *lock) same(there fs.FileInfo) bool {
	ours, err := l.file.Stat()
	return err == nil && os.SameFile(there, ours)
}

// release releases the lock and removes its file.
func (l *lock) release() error {
	if there, err := os.Lstat(l.path); err != nil || !l.same(there) {
		return l.file.Close() // the run directory was lost
	}
	return errors.Join(os.Remove(l.path), l.file.Close())
}
