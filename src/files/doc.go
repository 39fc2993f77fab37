// Package files opens files that come from outside, and replaces files as a whole. A path goes in. Out
// comes a file of the wanted kind within a bound on its size, or one error that names file, line and
// field. Files of one JSON value a line may have a torn last line. Unknown keys are refused. Foreign text
// is made safe for a terminal. Files and directories are written completely or not at all, with
// permissions of the umask.
package files
