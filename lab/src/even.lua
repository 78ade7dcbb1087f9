-- Runs a packaged script of sysbench at a rate. Each session begins its events at evenly spaced moments, and one that is late at
-- once, until it has caught up. The script's name is in STRATA_LAB_SCRIPT, the events a second of all sessions are in
-- STRATA_LAB_RATE. sysbench's own --rate begins events at random moments and adds their wait for a free session to their latency;
-- near the highest rate such a wait says more of chance than of the server.
require(os.getenv("STRATA_LAB_SCRIPT"))

local ffi = require("ffi")
ffi.cdef [[
   struct strata_lab_time { long seconds; long nanoseconds; };
   int clock_gettime(int clock, struct strata_lab_time *time);
   int usleep(unsigned int microseconds);
]]
local MONOTONIC = 1
local time = ffi.new("struct strata_lab_time[1]")

local function now()
   ffi.C.clock_gettime(MONOTONIC, time)
   return tonumber(time[0].seconds) + tonumber(time[0].nanoseconds) / 1e9
end

local function wait_until(moment)
   local left = moment - now()
   if left > 0 then
      ffi.C.usleep(left * 1e6)
   end
end

-- A deadlock ends the event in the middle; it is begun again, as sysbench's own loop does.
local function run_event(id)
   local done, problem = pcall(event, id)
   while not done do
      if type(problem) ~= "table" or problem.errcode ~= sysbench.error.RESTART_EVENT then
         error(problem, 2)
      end
      done, problem = pcall(event, id)
   end
end

function thread_run(id)
   local pause = sysbench.opt.threads / tonumber(os.getenv("STRATA_LAB_RATE"))
   -- The sessions take turns.
   local due = now() + pause * id / sysbench.opt.threads
   while ffi.C.sb_more_events(id) do
      wait_until(due)
      due = due + pause
      ffi.C.sb_event_start(id)
      run_event(id)
      ffi.C.sb_event_stop(id)
   end
end
