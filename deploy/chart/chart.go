// Package chart holds the CustomResourceDefinitions of the chart that it lies in.
package chart

import "embed"

// CRDs are the files of the folder crds, YAML of one CustomResourceDefinition each.
//
//go:embed crds/*.yaml
var CRDs embed.FS
