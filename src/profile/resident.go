package profile

import (
	"bytes"
	"os"
	"strconv"
)

// Anonymous returns the bytes of anonymous memory that this process has in
// RAM: heaps, stacks and mapped buffers, not files and not what MPI shares with
// other processes. It is 0 where the system does not tell.
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
