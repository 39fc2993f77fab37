// Package replace writes files and directories whole or not at all. A path and a function that
// writes come in. The path with all the new contents goes out, or an error and the path as before.
// Permissions follow the umask.
package replace
