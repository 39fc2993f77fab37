// Package replace writes files and directories completely or not at all. In come a path and a
// function that writes. Out comes the path with all new contents, or an error and the path as
// before. Permissions follow the umask.
package replace
