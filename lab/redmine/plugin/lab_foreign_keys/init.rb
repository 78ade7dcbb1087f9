# What many plugins do: a table of their own with a reference to issues. The lab tries whether an engine takes it.
Redmine::Plugin.register :lab_foreign_keys do
  name 'Foreign keys'
  description 'A table that refers to issues'
  version '1.0'
end
