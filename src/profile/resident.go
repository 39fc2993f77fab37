package profile

import (
	"bytes"
	"os"
	"strconv"
)

// Anonymous returns the bytes of anonymous memory that this process has in RAM. These are heaps,
// stacks and mapped buffers, without files and without the memory that MPI shares with other
// processes. It is 0 if the system does not report it.
func Anonymous() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(status) {
		if value, ok := bytes.CutPrefix(line, []byte("RssAnon:")); ok {
			kib, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(value), []byte("kB")))), 10, 64)
			if err != nil {
				return 0
			}
			return kib * 1024
		}
	}
	return 0
}
