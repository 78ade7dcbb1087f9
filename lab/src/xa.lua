-- Runs a packaged script of sysbench with each event as an XA transaction: START, the event, END, PREPARE, COMMIT. The
-- script's name is in STRATA_LAB_SCRIPT. Scripts that begin a transaction themselves do it by the functions replaced here;
-- the others are put between them.
local script = os.getenv("STRATA_LAB_SCRIPT")
require(script)

local begins = {oltp_read_only = true, oltp_read_write = true, oltp_write_only = true}
local number, open = 0, nil

-- A deadlock ends the event in the middle, and sysbench begins another one.
local function forget()
   if open then
      pcall(function() con:query("XA END " .. open) end)
      pcall(function() con:query("XA ROLLBACK " .. open) end)
      open = nil
   end
end

function begin()
   forget()
   number = number + 1
   open = string.format("'%d-%d'", sysbench.tid, number)
   con:query("XA START " .. open)
end

function commit()
   con:query("XA END " .. open)
   con:query("XA PREPARE " .. open)
   con:query("XA COMMIT " .. open)
   open = nil
end

if not begins[script] then
   local plain = event
   function event()
      begin()
      plain()
      commit()
   end
end
