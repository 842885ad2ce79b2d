// Package store reads files by offset, wherever they lie.
//
// # What it is
//
// [Open] gives a [File] for a name: on disk, through a bounded pool of open files; over https and S3-style
// protocols in ranges, with retries, through a cache of bounded size on disk. A URL's scheme decides, and
// nothing above knows which it was.
//
// # What always holds
//
//   - A read gives the bytes asked for or an error that names the file, the range, and what was tried how
//     often.
//   - What is cached is what the server has: size and version are compared, and a cache that was cut short
//     is fetched again.
//   - Names are printed without the secrets in them ([Redact]).
//   - A read that hangs can be told: [Waits] lists who waits for which server since when.
//
// # Where to begin
//
// store.go for the interface, remote.go for ranges and retries, http.go and s3.go for the two protocols, cache.go.
package store
