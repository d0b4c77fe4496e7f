package images

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// BillOfMaterials lists the programs of an image and the modules that each is
// linked from, as the programs themselves say: JSON of CycloneDX 1.6
// (https://cyclonedx.org/docs/1.6/json/).
func BillOfMaterials(name, version string, image Image) ([]byte, error) {
	modules := map[string]cdx.Component{}
	var programs []cdx.Component
	var links []cdx.Dependency
	root := cdx.Component{BOMRef: name, Type: cdx.ComponentTypeContainer, Name: name, Version: version}
	of := []string{}
	for _, path := range slices.Sorted(maps.Keys(image.Files)) {
		program, needs, err := readProgram(path, image.Files[path], version)
		if err != nil {
			return nil, err
		}
		maps.Copy(modules, needs)
		needed := slices.Sorted(maps.Keys(needs))
		programs, of = append(programs, program), append(of, program.BOMRef)
		links = append(links, cdx.Dependency{Ref: program.BOMRef, Dependencies: &needed})
	}
	links = slices.Insert(links, 0, cdx.Dependency{Ref: root.BOMRef, Dependencies: &of})
	for _, ref := range slices.Sorted(maps.Keys(modules)) {
		programs = append(programs, modules[ref])
	}
	bom := cdx.NewBOM() // without a serial number or a time, which would make each one another
	bom.Metadata = &cdx.Metadata{Component: &root}
	bom.Components, bom.Dependencies = &programs, &links
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("cannot write the bill of materials of %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// readProgram gives a program, and the modules that it is linked from by their
// package URLs (https://github.com/package-url/purl-spec).
func readProgram(path, file, version string) (cdx.Component, map[string]cdx.Component, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return cdx.Component{}, nil, fmt.Errorf("cannot read what %s is linked from: %w", file, err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return cdx.Component{}, nil, fmt.Errorf("cannot read %s: %w", file, err)
	}
	sum := sha256.Sum256(data)
	program := cdx.Component{
		BOMRef: path, Type: cdx.ComponentTypeApplication, Name: path, Version: version,
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
	}
	modules := map[string]cdx.Component{}
	add := func(m debug.Module) {
		purl := "pkg:golang/" + m.Path + "@" + m.Version
		modules[purl] = cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl}
	}
	add(debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")})
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		add(*m)
	}
	return program, modules, nil
}
