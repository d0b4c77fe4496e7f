// Package modelclaim keeps the models that ModelCaches ask for on PersistentVolumeClaims:
// it makes the claim, and a Job that fetches the model into it, and tells how far that is.
// What it does when is the table in spec/modelclaim.md.
package modelclaim
