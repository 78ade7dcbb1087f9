-- An event that fails.
function event()
   error("broken")
end
