# Makes the tables of a Redmine by its own migrations, and a data set through its own models. Run by 'rails runner'.
#
# LAB_SET is JSON: users, projects (how many on each level), members (of a project), issues, comments (of an issue), loaders
# (processes that make issues), seed. The same settings make the same rows with the same ids, however many processes share the
# work: issues and comments are given theirs. Comments are made as Journal records of their own; what their issue would look like
# to a reader needs no more, and through the issue each would also write the issue's row.
#
# Nobody is sent mail: users ask for none, as they may in their settings.

require 'json'
require_relative 'common'

SET = JSON.parse(ENV.fetch('LAB_SET'))
# Issues of a transaction.
BATCH = 20

# Runs a block in a process of its own, with a connection of its own; whether it went well. The process ends when its parent is gone.
def in_process
  ActiveRecord::Base.connection_handler.clear_all_connections!
  parent = Process.pid
  fork do
    Thread.new { sleep(0.5) while Process.ppid == parent; exit!(1) }
    ActiveRecord::Base.establish_connection
    yield
    exit!(0)
  rescue Exception => e # rubocop:disable Lint/RescueException
    say_error(e)
    exit!(1)
  end
end

def wait_for(*children)
  # All are waited for, whatever came of the first.
  children.map { |pid| Process.wait2(pid).last.success? }.all?
end

# In a process of its own: models that saw the tables of an early migration would go on believing in them.
def migrate
  migrated = in_process do
    ActiveRecord::Migration.verbose = false
    ActiveRecord::Base.connection.migration_context.migrate
    say('migrated', ActiveRecord::Base.connection.migration_context.current_version, ActiveRecord::Base.connection.tables.length)
    others = ActiveRecord::Base.connection.select_rows(
      'SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE() AND engine <> @@default_storage_engine'
    )
    raise "tables of another engine: #{others.map { |row| row.join(' ') }.join(', ')}" if others.any?
  end
  exit(1) unless wait_for(migrated)
  ActiveRecord::Base.connection.schema_cache.clear!
  ActiveRecord::Base.descendants.each(&:reset_column_information)
  Redmine::DefaultData::Loader.load('en')
end

# A plugin's table that refers to issues, as plugins of others have: whether the reference stands.
def foreign_keys
  Redmine::Plugin.find(:lab_foreign_keys).migrate
  stand = ActiveRecord::Base.connection.foreign_keys(:lab_links).length
  say('foreign_keys', stand)
rescue StandardError => e
  say('foreign_keys', 0, e.message.gsub(/\s+/, ' ')[0, 300])
end

def users
  random = Random.new(SET['seed'])
  (1..SET['users']).map do |n|
    name = "#{WORDS.sample(random: random)}#{n}"
    user = User.new(firstname: name.capitalize, lastname: "#{WORDS.sample(random: random)}son".capitalize,
                    mail: "#{name}@example.net", language: 'en', mail_notification: 'none')
    user.login = name
    user.pref.no_self_notified = true
    user.save!
    user.id
  end
end

# Levels of projects, each below one of the level above; the ids of all.
def projects(members)
  random = Random.new(SET['seed'] + 1)
  manager, developer = Role.givable.order(:position).first(2)
  above = []
  SET['projects'].each_with_index.flat_map do |count, level|
    made = (1..count).map do |n|
      project = Project.new(name: "#{subject(random)[0, 40]} #{level}.#{n}", identifier: "level#{level}-#{n}",
                            description: prose(random, 200), enabled_module_names: %w[issue_tracking])
      project.parent = above[n % above.length] unless above.empty?
      project.save!
      members.sample(SET['members'], random: random).each_with_index do |user, at|
        # Three of ten manage.
        Member.create!(project: project, user_id: user, roles: [at % 10 < 3 ? manager : developer])
      end
      project
    end
    above = made
    made.map(&:id)
  end
end

# The first lines of an issue that a loader's process needs again and again.
class Maker
  def initialize(projects)
    @projects = Project.where(id: projects).includes(:trackers).order(:id).to_a
    @trackers = Tracker.order(:position).to_a
    @priorities = IssuePriority.active.to_a
    @statuses = IssueStatus.order(:position).to_a
    @members = Member.where(project_id: projects).order(:id).pluck(:project_id, :user_id).group_by(&:first)
  end

  def make(number)
    random = Random.new(SET['seed'] * 1_000_003 + number)
    project = @projects[random.rand(@projects.length)]
    people = @members[project.id].map(&:last)
    issue = Issue.new(project: project, tracker: @trackers[random.rand(@trackers.length)], author_id: people.sample(random: random),
                      subject: subject(random), description: prose(random, random.rand(100..900)),
                      priority: @priorities[random.rand(@priorities.length)],
                      status: @statuses[random.rand(@statuses.length)], assigned_to_id: people.sample(random: random))
    issue.id = number
    issue.notify = false
    issue.save!
    (1..SET['comments']).each do |n|
      comment = Journal.new(journalized: issue, user_id: people.sample(random: random), notes: prose(random, random.rand(40..400)))
      comment.id = (number - 1) * SET['comments'] + n
      comment.notify = false
      raise ActiveRecord::RecordNotSaved, 'a comment is not saved' unless comment.save
    end
  end
end

# Each loader takes every so many-th batch.
def load(projects, loader, loaders)
  maker = Maker.new(projects)
  batches = (1..SET['issues']).each_slice(BATCH).to_a
  batches.each_with_index do |numbers, at|
    next unless at % loaders == loader

    begin
      Issue.transaction { numbers.each { |number| maker.make(number) } }
    rescue *REPEATED
      say('repeated')
      retry
    end
    say('made', numbers.length)
    RequestStore.clear!
  end
end

begin
  migrate
  foreign_keys
  made = Project.transaction { projects(users) }
  say('projects', made.length)
  loaders = SET['loaders']
  exit(1) unless wait_for(*(0...loaders).map { |loader| in_process { load(made, loader, loaders) } })
  say('done')
rescue StandardError => e
  say_error(e)
  exit(1)
end
