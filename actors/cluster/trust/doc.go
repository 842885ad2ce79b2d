// Package trust is who may take part in a cluster.
//
// # What it is
//
// A cluster has a certificate authority of its own ([CA]), which signs one certificate for each node and user
// ([Identity]), with its role in the subject ([Subject]). A [Token] lets a host without ssh join: it has the
// authority's hash, by which the newcomer knows the cluster, and a secret that serves once and for ten minutes.
//
// # What always holds
//
//   - Private keys are written with mode 0600 into directories that others cannot read, and never leave
//     the host they were made on.
//   - Verification names a role: a worker's certificate does not open what is a user's.
//   - Times come from a clock that is handed in, so that tests mint certificates that have expired or are
//     not yet valid.
//
// # Where to begin
//
// ca.go, then identity.go for what TLS connections demand, token.go for joining.
package trust
