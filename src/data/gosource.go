package data

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// goSource returns the source tree of the Go toolchain. It tries the root in the environment, then
// that of the go command, then the installed roots. It takes the first root with a source tree.
func goSource(installed ...string) (string, error) {
	type source struct {
		name string
		root func() (string, error)
	}
	sources := []source{
		{"$GOROOT", func() (string, error) { return os.Getenv("GOROOT"), nil }},
		{"go env GOROOT", askGo},
	}
	for _, root := range installed {
		sources = append(sources, source{"", func() (string, error) { return root, nil }})
	}
	var tried []string
	for _, s := range sources {
		root, err := s.root()
		if err == nil && root == "" {
			err = errors.New("not set")
		}
		if err == nil {
			src := filepath.Join(root, "src")
			if _, err = os.Stat(src); err == nil {
				return src, nil
			}
			err = cause(err)
		}
		tried = append(tried, fmt.Sprintf("%s (%v)", strings.TrimSpace(s.name+" "+root), err))
	}
	return "", fmt.Errorf("data.path is empty and no Go source tree was found; tried %s; wanted a file or directory of text",
		strings.Join(tried, ", "))
}

// askGo returns the root of the go command. It runs the command in the file system's root
// directory, where no module can make it download another toolchain.
func askGo() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ask := exec.CommandContext(ctx, "go", "env", "GOROOT")
	ask.Dir = "/"
	answer, err := ask.Output()
	return strings.TrimSpace(string(answer)), err
}
