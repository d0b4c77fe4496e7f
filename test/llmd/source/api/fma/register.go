package fma

const GroupName = "fma.llm-d.ai"
