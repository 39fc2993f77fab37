// Package replace writes files and directories whole or not at all: what goes in
// are a path and a function that writes, and what comes out is the path with all
// that was written, or an error and the path as it was. Permissions are those that
// the umask leaves.
package replace
